"""Programs around the plans of trt_builder: ``make_gpu_models.py PLANS FOLDER``.

Each PLANS/NAME.plan, described by PLANS/NAME.json, becomes FOLDER/NAME.pte. Exits with 77 if there are none,
as on a machine without a GPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from etrt.wrapping import wrap


def main() -> int:
    """See the head of this file; the exit code."""
    plans, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    described = [path for path in sorted(plans.glob("*.plan")) if path.with_suffix(".json").exists()]
    if not described:
        print(f"{plans} has no plans: trt_builder writes them where there is a GPU")
        return 77
    for plan in described:
        program = folder / f"{plan.stem}.pte"
        states = json.loads(plan.with_suffix(".json").read_text()).get("states", {})
        wrap(plan, plan.with_suffix(".json")).save(program)
        print(f"{program}: {program.stat().st_size} bytes, {len(states)} states")
    return 0


if __name__ == "__main__":
    sys.exit(main())
