"""Names of Python and NumPy that programs of RLlib 1.x's time use, and that today's have no longer."""

from __future__ import annotations

import collections.abc
import re
from collections.abc import Iterator, Mapping

import libcst as cst

_OF_NUMPY = {
    **{name: name for name in ("bool", "int", "float", "complex", "object", "str")},
    "long": "int", "unicode": "str",
    "product": "np.prod", "cumproduct": "np.cumprod", "alltrue": "np.all", "sometrue": "np.any", "round_": "np.round",
    "float_": "np.float64", "complex_": "np.complex128", "unicode_": "np.str_", "string_": "np.bytes_",
    "bool8": "np.bool_", "int0": "np.intp", "uint0": "np.uintp", "object0": "object", "str0": "np.str_",
    "bytes0": "np.bytes_", "cfloat": "np.complex128", "singlecomplex": "np.complex64", "longfloat": "np.longdouble",
    "longcomplex": "np.clongdouble", "mat": "np.asmatrix",
    "Inf": "np.inf", "Infinity": "np.inf", "infty": "np.inf", "PINF": "np.inf", "NaN": "np.nan", "NAN": "np.nan",
}  # fmt: skip
"""NumPy's names that went in 1.24 and 2.0: what has the same meaning, an attribute of NumPy or a name of Python's."""
_ABSTRACT = frozenset(collections.abc.__all__)
"""What went from `collections` to `collections.abc`, in Python 3.10 at last."""
_TOLD = {
    "time.clock": "is gone since Python 3.8; write time.process_time() for the time of the CPU, or time.perf_counter()",
    "inspect.getargspec": "is gone since Python 3.11; write inspect.getfullargspec(), which returns seven fields, or "
    "inspect.signature()",
    "fractions.gcd": "is gone since Python 3.9; write math.gcd",
    "numpy.asscalar": "is gone from NumPy; write array.item()",
    "numpy.asfarray": "is gone from NumPy; write np.asarray(array, dtype=float)",
    "numpy.cast": "is gone from NumPy; write np.asarray(array, dtype=dtype)",
    "numpy.find_common_type": "is gone from NumPy; write np.result_type",
    "numpy.in1d": "is gone from NumPy; write np.isin, which keeps the shape of its first argument",
    "numpy.math": "is gone from NumPy; write math, and import it",
    "numpy.trapz": "is gone from NumPy 2; write np.trapezoid",
    "numpy.msort": "is gone from NumPy; write np.sort(array, axis=0)",
}
"""What no other name can just take the place of."""
_NUMBERS_OF_NUMPY = {"NINF": "float('-inf')", "NZERO": "-0.0", "PZERO": "0.0"}
"""Those of NumPy's names that no other name stands for, but a number does."""
MODULES = frozenset({"numpy", "collections", *(name.partition(".")[0] for name in _TOLD)})
"""The modules that had them."""


_WORDS = "|".join(sorted({*_OF_NUMPY, *_NUMBERS_OF_NUMPY, *_ABSTRACT, *(name.rpartition(".")[2] for name in _TOLD)}))
_ANY_MODULE = "|".join(sorted(MODULES))
_UNSEEN = re.compile(r"#[^\n]*|\\\n")  # comments, and ends of lines that go on
_ALIAS = re.compile(rf"\b(?:{_ANY_MODULE})[ \t]+as[ \t]+(\w+)")
_ELSEWHERE = re.compile(
    rf"\bcopy\s*=\s*False\b|\bfrom\s+(?:{_ANY_MODULE})\s+import\b(?:\s*\([^)]*|[^\n]*)\b(?:{_WORDS})\b"
)


def mentioned_in(text: str) -> bool:
    """Returns whether there may be a name to rewrite or to tell of in a program; a look that takes no parsing."""
    return any(map(_mentioned, (text, _UNSEEN.sub(" ", text))))  # a text in quotes may have what looks like a comment


def _mentioned(text: str) -> bool:
    named = "|".join(sorted({"np", *MODULES, *_ALIAS.findall(text)}))
    attribute = rf"\b(?:{named})\s*\.\s*(?:{_WORDS})\b"
    return re.search(attribute, text) is not None or _ELSEWHERE.search(text) is not None


def replacement(node: cst.Attribute, modules: Mapping[str, str]) -> cst.BaseExpression | None:
    """Returns what to write for `np.product` or `collections.Mapping`; None where that is no such name.

    Args:
        node: The expression.
        modules: Of `MODULES`, those that the program imports, by the name that it has for them.
    """
    name = node.attr.value
    match modules.get(node.value.value) if isinstance(node.value, cst.Name) else None:
        case "collections" if name in _ABSTRACT:
            return node.with_changes(value=cst.Attribute(node.value, cst.Name("abc")))
        case "numpy" if name in _NUMBERS_OF_NUMPY:
            return cst.parse_expression(f"({_NUMBERS_OF_NUMPY[name]})" if name == "NZERO" else _NUMBERS_OF_NUMPY[name])
        case "numpy" if name in _OF_NUMPY:
            module, _, new = _OF_NUMPY[name].rpartition(".")
            return node.with_changes(attr=cst.Name(new)) if module else cst.Name(new, lpar=node.lpar, rpar=node.rpar)
    return None


def as_array(call: cst.Call, modules: Mapping[str, str]) -> cst.Call:
    """Returns `np.asarray(x)` for `np.array(x, copy=False)`, which NumPy 2 refuses where it must copy.

    In NumPy 1 both mean the same where nothing but a dtype and an order is given as well. Other calls stay.
    """
    called, kept = call.func, [each for each in call.args if not _is_copy_false(each)]
    if not (isinstance(called, cst.Attribute) and called.attr.value == "array" and isinstance(called.value, cst.Name)):
        return call
    plain = all(not each.star and (each.keyword is None or each.keyword.value in ("dtype", "order")) for each in kept)
    if modules.get(called.value.value) != "numpy" or not kept or len(kept) == len(call.args) or not plain:
        return call
    kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return call.with_changes(func=called.with_changes(attr=cst.Name("asarray")), args=kept)


def _is_copy_false(argument: cst.Arg) -> bool:
    match argument:
        case cst.Arg(keyword=cst.Name("copy"), value=cst.Name("False")):
            return True
    return False


def sentence_on(node: cst.Attribute, modules: Mapping[str, str]) -> str | None:
    """Returns what a person must know of `time.clock` and the like; None where that is no such name."""
    if not isinstance(node.value, cst.Name) or node.value.value not in modules:
        return None
    name = f"{modules[node.value.value]}.{node.attr.value}"
    return f"{name} {_TOLD[name]}" if name in _TOLD else None


def sentences_on_import(module: str, names: collections.abc.Sequence[str]) -> Iterator[str]:
    """Yields what a person must know of `from time import clock` and the like."""
    for name in names:
        if f"{module}.{name}" in _TOLD:
            yield f"{module}.{name} {_TOLD[f'{module}.{name}']}"
        elif module == "numpy" and name in _OF_NUMPY:
            yield f"numpy.{name} is gone from NumPy; write {_OF_NUMPY[name]}"
        elif module == "numpy" and name in _NUMBERS_OF_NUMPY:
            yield f"numpy.{name} is gone from NumPy; write {_NUMBERS_OF_NUMPY[name]}"


def abstract_apart(
    line: cst.SimpleStatementLine, statement: cst.ImportFrom, names: collections.abc.Sequence[cst.ImportAlias]
) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
    """Returns `from collections import Mapping, deque` as one line for `collections.abc` and one for the rest."""
    gone = [alias for alias in names if alias.evaluated_name in _ABSTRACT]
    kept = [alias for alias in names if alias.evaluated_name not in _ABSTRACT]
    if not gone:
        return line
    new = statement.with_changes(module=cst.Attribute(cst.Name("collections"), cst.Name("abc")))
    if not kept:
        return line.with_changes(body=[new])
    first, second = (
        each.with_changes(names=[*chosen[:-1], chosen[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)])
        for each, chosen in ((statement, kept), (new, gone))
    )
    return cst.FlattenSentinel([line.with_changes(body=[first]), line.with_changes(body=[second], leading_lines=[])])
