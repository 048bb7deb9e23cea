"""What the tests of gpu figures share."""

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import gpu_kit

MACHINE = {
    "gpu": {"name": "GPU 9000", "gib": 80.0, "driver": "580.1", "cuda": "13.0"},
    "cpus": 16,
    "python": "3.12.3",
    "versions": {"torch": "2.11.0"},
}


def process(seconds: float, gib: float | None = 20.0, **more: Any) -> dict[str, Any]:
    names = ("rollout_gib", "update_gib", "allocated_gib", "reserved_gib", "device_gib")
    return {
        "parts": {"rollout": seconds, "scoring": 0.0, "forward-backward": 0.0, "rest": 0.0},
        "memory": dict.fromkeys(names, gib) if gib else None,
        "estimate_gib": {"peak": 25.0, "rollout": 23.0, "update": 14.0},
        "max_batch": 256,
    } | more


def packed_kit(folder: Path) -> Path:
    """A kit of two files in parts of 1,000 bytes."""
    site, kit = folder / "wheels", folder / "kit"
    (site / "package").mkdir(parents=True)
    (site / "package" / "__init__.py").write_text("VALUE = 7\n")
    (site / "noise").write_bytes(bytes(range(256)) * 4 + Path(sys.executable).read_bytes()[:4000])
    parts = gpu_kit.pack(site, kit, 1000)
    assert len(parts) > 1 and all(part["bytes"] <= 1000 for part in parts.values())
    content = {"python": "{}.{}".format(*sys.version_info), "parts": parts}
    (kit / "kit.json").write_text(json.dumps(content))
    return kit
