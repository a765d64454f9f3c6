"""The accounts of all models on one number of virtual devices, in a process of its own.

`python -m benchmarks.scaling.worker COUNT [--tiny]` prints them as JSON. The devices are threads of this process, which
nothing is run on: what is compiled for them is what would be for as many processors.
"""

from __future__ import annotations

import argparse
import json
import os
from contextlib import nullcontext


def main() -> None:
    """Parse the command line, compile, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={options.count}"  # before JAX starts

    import nngrad as nn

    from .account import account_of, compiled
    from .models import MODELS, step_of

    found = []
    models = {"PINN": MODELS["PINN"]._replace(each=4, whole=32)} if options.tiny else MODELS
    for name, model in models.items():
        for way, batch in (("weak", model.each * options.count), ("strong", model.whole)):
            nn.clear_parameters()
            with nn.mesh(data=options.count) if options.count > 1 else nullcontext():
                step = step_of(model.build(batch))
            account = account_of(compiled(step))
            gradients = sum([p.data.raw().nbytes for p in step._variables])
            found.append({
                "model": name, "way": way, "devices": options.count, "batch": batch, "flops": account.flops,
                "accessed": account.accessed, "temporaries": account.temporaries, "arguments": account.arguments,
                "sent": account.sent, "gradients": gradients,
                "collectives": {c.kind: account.number_of(c.kind) for c in account.collectives},
            })
    print(json.dumps(found))


if __name__ == "__main__":
    main()
