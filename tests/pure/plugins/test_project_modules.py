"""A user's folder with modules named like Decile's, the standard library's or an optional one."""

from project_modules_cases import project  # noqa: F401 (fixtures)

from orchestrator.plugins.project_modules import _folders_from_driver


def test_a_rays_worker_puts_the_folders_of_the_driver_last() -> None:
    ray = "/lib/ray/_private/workers"
    path = [
        "/project",
        "/bin",
        "/lib/ray/thirdparty_files",
        ray,
        "/tmp/working_dir_files/x",
        "/lib",
    ]
    assert _folders_from_driver(path, ray) == ["/project", "/bin", "/tmp/working_dir_files/x"]
