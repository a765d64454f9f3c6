"""Run these programs under Sony's nnabla and keep their figures in `losses.json`.

`python examples/nnabla/record.py [names]`, with a Python that has nnabla 1.36. The import lines alone are replaced.
"""

import json
import os
import re
import runpy
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FIGURES = os.path.join(HERE, "losses.json")


def figures(name):
    """What the program's `history` holds in the end."""
    with open(os.path.join(HERE, name + ".py")) as file:
        source = re.sub(r"^(import|from) nngrad\.nnabla\b", r"\1 nnabla", file.read(), flags=re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open(name + ".py", "w") as file:
            file.write(source)
        history = runpy.run_path(name + ".py")["history"]
        os.chdir(HERE)
    return {key: [float(f"{value:.9g}") for value in values] for key, values in history.items()}


def main(names):
    """Run the programs of these names, or all."""
    import nnabla as nn

    programs = sorted(n[:-3] for n in os.listdir(HERE) if n.endswith(".py") and n != "record.py")
    kept = {}
    if os.path.exists(FIGURES):
        with open(FIGURES) as file:
            kept = json.load(file)
    for name in names or programs:
        nn.clear_parameters()
        kept[name] = figures(name)
        print(name, {key: values[-1] for key, values in kept[name].items()})
    kept["how"] = "made by record.py with nnabla " + nn.__version__ + " on the CPU, in float32"
    with open(FIGURES, "w") as file:
        json.dump({key: kept[key] for key in ["how", *programs] if key in kept}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
