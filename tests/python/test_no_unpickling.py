"""The Python packages run nothing that bytes of the cluster name: no unpickling, no evaluation."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("sdk/python", "pytorch/src")
# Calls that may run what their input names.
UNSAFE = {
    *(f"{module}.{name}" for module in ("pickle", "cPickle", "dill", "cloudpickle", "marshal", "joblib")
      for name in ("load", "loads", "Unpickler")),
    "yaml.load",
    "yaml.unsafe_load",
    "shelve.open",
    "eval",
    "exec",
}  # fmt: skip
# An unpickler that makes types of metadata only; test_dcp.py shows that it runs nothing.
RESTRICTED = {("pytorch/src/forebay_torch/dcp/metadata.py", "pickle.Unpickler")}


def dotted(node: ast.expr) -> str:
    """The dotted name of an expression; empty for others."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (within := dotted(node.value)):
        return f"{within}.{node.attr}"
    return ""


def full_names(tree: ast.AST) -> dict[str, str]:
    """The dotted name of everything that a module imports, by its name in the module."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({alias.asname or alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
    return names


def is_limited(name: str, call: ast.Call) -> bool:
    """Whether a call of a loader says that no code of the input may run."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    match name:
        case "torch.load":
            # Either True, or a parameter that the caller of our function sets.
            value = given.get("weights_only")
            is_true = isinstance(value, ast.Constant) and value.value is True
            return is_true or (isinstance(value, ast.Name) and value.id == "weights_only")
        case "numpy.load" | "np.load":
            value = given.get("allow_pickle")
            return isinstance(value, ast.Constant) and value.value is False
    return True


def problems(source: str, file: str = "x.py") -> Iterator[str]:
    tree = ast.parse(source)
    names = full_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            used = [dotted(base) for base in node.bases]
        elif isinstance(node, ast.Call):
            used = [dotted(node.func)]
        else:
            continue
        for text in used:
            first, _, rest = text.partition(".")
            name = ".".join(filter(None, (names.get(first, first), rest)))
            unsafe = name in UNSAFE and (file, name) not in RESTRICTED
            if unsafe or (isinstance(node, ast.Call) and not is_limited(name, node)):
                yield f"{file}:{node.lineno}: {name}"


def test_no_module_of_the_packages_unpickles_or_evaluates_bytes_of_the_cluster() -> None:
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 50
    found: list[str] = []
    for file in files:
        found += problems(file.read_text(encoding="utf-8"), str(file.relative_to(ROOT)))
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle\npickle.loads(b)",
        "from pickle import loads as read\nread(b)",
        "import pickle as p\nclass U(p.Unpickler): ...",
        "import torch\ntorch.load(f)",
        "import torch\ntorch.load(f, weights_only=False)",
        "import numpy as np\nnp.load(f, allow_pickle=True)",
        "import numpy\nnumpy.load(f)",
        "import yaml\nyaml.load(f, yaml.Loader)",
        "eval(text)",
    ],
)
def test_a_module_that_unpickles_is_noticed(source: str) -> None:
    assert len(list(problems(source))) == 1


def test_a_checkpoint_is_loaded_without_code_unless_the_caller_asks_for_it() -> None:
    """The parameters of ``Checkpoint`` that reach ``torch.load`` are True by default."""
    tree = ast.parse((ROOT / "pytorch/src/forebay_torch/checkpoint/checkpoint.py").read_text())
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                if argument.arg == "weights_only":
                    assert isinstance(default, ast.Constant) and default.value is True, node.name
                    found += 1
    assert found >= 2
