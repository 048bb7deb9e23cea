"""What `decile init` prints about a file."""

from orchestrator.cli.init import of_every_reason


def test_every_reason_has_an_example_before_a_second_one() -> None:
    rows = [("1", "no answer"), ("2", "no answer"), ("3", "a placeholder"), ("4", "no answer")]
    assert of_every_reason(rows, 4) == [rows[0], rows[2], rows[1], rows[3]]
    assert of_every_reason(rows, 3) == [rows[0], rows[2], rows[1]]
    assert of_every_reason([], 3) == []
