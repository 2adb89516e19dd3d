"""The rewriting of one program's syntax tree; imported where LibCST is installed."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import libcst as cst
from libcst import matchers as m
from libcst.helpers import get_full_name_for_node
from libcst.metadata import MetadataWrapper, PositionProvider

from rlframe.config.common import CommonConfig
from rlframe.config.renames import RENAMES, Rename
from rlframe.config.unsupported import UNSUPPORTED
from rlframe.rllib1x import gone_names
from rlframe.rllib1x.findings import CONFIG_PAGE, PATHS_PAGE, Note, missing_names

_OLD, _NEW = "ray.rllib", "rlframe"
_PATH_IN_STRING = re.compile(r"(?P<quote>['\"]{1,3})ray\.rllib(?P<rest>(\.(\w+|\{\w*\}|%s))*\.?)(?P=quote)")
_PATH_IN_F_STRING = re.compile(r"ray\.rllib(?P<rest>\.[\w.]*)")
_LIKE_A_CONFIG = re.compile(r"conf(ig)?s?$|_config|^cfg$", re.IGNORECASE)
_KEYS_OF_A_CONFIG = 2
_MISSING = object()
_GONE_OF_RAY = ("ray.utils", "ray.experimental.tf_utils")
"""Modules that RLlib's own files and examples imported, mostly in vain, and that Ray no longer has."""
_ONCE_BESIDE_TUNE = dict.fromkeys(("ray.util.ml_utils.dict", "ray.util.ml_utils.json"), "ray.tune.utils.util")
"""Where Ray 1.8 to 2.0 had functions of Tune's, such as `flatten_dict`, and where Tune has them."""
_ARGUMENTS_OF_INIT = {
    "redis_address": "address",
    "webui_host": "dashboard_host",
    "include_webui": "include_dashboard",
    "memory": "_memory",
    "temp_dir": "_temp_dir",
    "plasma_directory": "_plasma_directory",
    "redis_password": "_redis_password",
    **dict.fromkeys((
        "local_mode", "redis_max_memory", "driver_object_store_memory", "lru_evict", "use_pickle", "huge_pages",
        "load_code_from_local", "java_worker_options",
    )),
}  # fmt: skip
"""Arguments of `ray.init` that Ray no longer has: what it calls them, or None where it has nothing of the kind."""


_RUNNING = {"run", "run_experiments", "Experiment", "get_trainable_cls"}
_WHAT_IS_RUN = {"run", "run_or_experiment"}
"""Tune's functions that take an algorithm's name, and what it is called among their arguments and in specifications."""


def rewrite(module: cst.Module, *, helper: bool = False) -> tuple[str, list[Note]]:
    """Returns the text of the rewritten program, and what a person must decide.

    A helper is a file beside programs of RLlib's: what it has of Tune and `ray.init` is of their time, too; where it
    has neither, only names that are gone are rewritten.
    """
    uses = _Uses()
    module.visit(uses)
    if not (uses.rllib or uses.run_an_algorithm() or uses.names_of_old_tune() or (helper and uses.ray)):
        code = module.code
        if not helper or not gone_names.mentioned_in(code):
            return code, []
        of_helper = _GoneNames(uses.modules)
        return MetadataWrapper(module, unsafe_skip_copy=True).visit(of_helper).code, of_helper.notes
    read = frozenset(text for text, count in uses.reads.items() if count > 0)
    in_vain = frozenset(name for name in _GONE_OF_RAY if uses.gone_of_ray[name] <= 0)
    rewriter = _Rewriter(read, uses.modules, in_vain=in_vain)
    changed = MetadataWrapper(module, unsafe_skip_copy=True).visit(rewriter)  # a tree as it was parsed, without copies
    return _with_missing_imports(changed).code, rewriter.notes


class _Uses(cst.CSTVisitor):
    """What a program is about: files that use today's Ray alone are left alone, and keys that they read again, too."""

    def __init__(self) -> None:
        self.rllib = False
        self.ray = self.tune = False  # Tune, or `ray.init`; Tune
        self._algorithm_by_name = False  # `tune.run("PPO")`
        self._algorithm_in_dict = False  # `{"run": "PPO"}`
        self._algorithm_chosen = self._algorithm_named = False  # `tune.run(args.run)`, and "PPO" as what that may be
        self._variables_run: set[str] = set()  # `tune.run(algorithm)`
        self._variables_of_algorithms: set[str] = set()  # `algorithm = "PPO"`
        self._of_tune_here: dict[str, str] = {}  # Tune's functions of `_RUNNING` that are imported, by their names here
        self.reads: Counter[str] = Counter()
        self.gone_of_ray: Counter[str] = Counter()  # uses of modules that Ray no longer has, beside their imports
        self.modules: dict[str, str] = {}  # those that had names that are gone, by what the program calls them
        self._of_tune: list[tuple[str, list[str]]] = []

    def run_an_algorithm(self) -> bool:
        """Returns whether Tune is told by name to run an algorithm, so that RLlib need not be mentioned."""
        return (
            self._algorithm_by_name
            or (self._algorithm_in_dict and self.tune)
            or (self._algorithm_chosen and self._algorithm_named)
            or not self._variables_run.isdisjoint(self._variables_of_algorithms)
        )

    def names_of_old_tune(self) -> bool:
        """Returns whether it imports names from Tune that are here and no longer in Ray."""
        return any(
            missing_names(module, names).keys() - missing_names(_NEW + module.removeprefix("ray"), names).keys()
            for module, names in self._of_tune
        )

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self.rllib |= _dotted(node) == _OLD
        self.gone_of_ray[_dotted(node) or ""] += 1

    def visit_Import(self, node: cst.Import) -> None:
        self.gone_of_ray.subtract(_dotted(alias.name) or "" for alias in node.names)
        for alias in node.names:
            self.rllib |= _is_below(alias.evaluated_name, _NEW)  # the paths may have been replaced by hand
            self._tune(_is_below(alias.evaluated_name, "ray.tune"))
            if alias.evaluated_name in gone_names.MODULES:
                self.modules[alias.evaluated_alias or alias.evaluated_name] = alias.evaluated_name

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if _dotted(node.module) == "ray" and not isinstance(node.names, cst.ImportStar):
            self.rllib |= any(_dotted(alias.name) == "rllib" for alias in node.names)
            self._tune(any(_dotted(alias.name) == "tune" for alias in node.names))
        if isinstance(node.names, cst.ImportStar):  # which may bring NumPy, under the name that it has everywhere
            self.modules.setdefault("np", "numpy")
        module = _module_of(node)
        self.rllib |= _is_below(module, _NEW) and not node.relative
        if _is_below(module, "ray.tune") and not node.relative:
            self._of_tune.append((module, _names_of(node)))
            self._tune(True)
            if isinstance(node.names, cst.ImportStar):
                self._of_tune_here.update((name, name) for name in _RUNNING)
            else:
                here = [(alias.evaluated_alias or alias.evaluated_name, alias.evaluated_name) for alias in node.names]
                self._of_tune_here.update((own, name) for own, name in here if name in _RUNNING)

    def _tune(self, found: bool) -> None:
        self.tune |= found
        self.ray |= found

    def visit_FormattedStringText(self, node: cst.FormattedStringText) -> None:
        self.rllib |= _PATH_IN_F_STRING.fullmatch(node.value) is not None

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        self.rllib |= _PATH_IN_STRING.fullmatch(node.value) is not None
        self.reads[_string(node) or ""] += 1
        self._algorithm_named |= _string(node) in _algorithms()

    def visit_DictElement(self, node: cst.DictElement) -> None:
        self.reads[_string(node.key) or ""] -= 1
        self._algorithm_in_dict |= _string(node.key) in _WHAT_IS_RUN and _string(node.value) in _algorithms()

    def visit_Assign(self, node: cst.Assign) -> None:
        if _may_be_an_algorithm(node.value):
            self._variables_of_algorithms.update(_dotted(target.target) or "" for target in node.targets)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        if _may_be_an_algorithm(node.value):
            self._variables_of_algorithms.add(_dotted(node.target) or "")

    def visit_Param(self, node: cst.Param) -> None:
        if _may_be_an_algorithm(node.default):
            self._variables_of_algorithms.add(node.name.value)

    def visit_For(self, node: cst.For) -> None:
        if isinstance(node.iter, cst.List | cst.Tuple) and any(
            _may_be_an_algorithm(element.value) for element in node.iter.elements
        ):
            self._variables_of_algorithms.add(_dotted(node.target) or "")

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        match node.target:
            case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Index(value=key))]):
                self.reads[_string(key) or ""] -= 1

    def visit_Call(self, node: cst.Call) -> None:
        called = _dotted(node.func) or ""
        self.ray |= called == "ray.init"
        self._tune(called.startswith("ray.tune."))
        named = [arg for arg in node.args if arg.keyword and arg.keyword.value in _WHAT_IS_RUN]
        if called == "dict":
            self._algorithm_in_dict |= any(_string(arg.value) in _algorithms() for arg in named)
        within, _, last = called.rpartition(".")
        function = last if "tune" in within.split(".") else ""
        function = function or self._of_tune_here.get(called, "")
        place = 1 if function == "Experiment" else 0  # behind the experiment's own name
        run = [*(arg for arg in node.args[place : place + 1] if not arg.keyword), *named]
        if function in _RUNNING:
            self._algorithm_by_name |= any(_string(arg.value) in _algorithms() for arg in run)
        if function == "run":
            self._algorithm_chosen |= any(isinstance(arg.value, cst.Attribute) for arg in run)
            self._variables_run.update(arg.value.value for arg in run if isinstance(arg.value, cst.Name))


class _GoneNames(cst.CSTTransformer):
    """Rewrites names that Python and NumPy no longer have; `notes` is what a person must decide."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, modules: Mapping[str, str]) -> None:
        super().__init__()
        self._modules = modules
        self.notes: list[Note] = []

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        if sentence := gone_names.sentence_on(original_node, self._modules):
            self._note(original_node, sentence)
        return gone_names.replacement(updated_node, self._modules) or updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        del original_node
        return gone_names.as_array(updated_node, self._modules)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        for sentence in gone_names.sentences_on_import(_dotted(node.module) or "", _names_of(node)):
            self._note(node, sentence)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        del original_node
        match updated_node.body:
            case [cst.ImportFrom(names=names) as statement] if _dotted(
                statement.module
            ) == "collections" and not isinstance(names, cst.ImportStar):
                return gone_names.abstract_apart(updated_node, statement, names)
        return updated_node

    def _note(self, node: cst.CSTNode, text: str, page: str = PATHS_PAGE) -> None:
        self.notes.append(Note(self.get_metadata(PositionProvider, node).start.line, text, page))


class _Rewriter(_GoneNames):
    """Rewrites a program of RLlib's."""

    def __init__(self, read: frozenset[str], modules: Mapping[str, str], *, in_vain: frozenset[str]) -> None:
        super().__init__(modules)
        self._in_vain = in_vain
        self._read = read
        self._configs: list[bool] = []
        self._paths: list[str | None] = []
        self._in_import = False

    # Imports and paths

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        if _dotted(original_node) == _OLD:
            return cst.Name(_NEW, lpar=updated_node.lpar, rpar=updated_node.rpar)
        if _dotted(original_node) == "ray.tune" and not self._in_import:
            return updated_node.with_changes(value=cst.Name(_NEW))
        return super().leave_Attribute(original_node, updated_node)

    def visit_Import(self, node: cst.Import) -> None:
        self._in_import = True
        for alias in node.names:
            name = _dotted(alias.name) or ""
            if _is_below(name, _OLD):
                self._note_missing(node, _NEW + name.removeprefix(_OLD), ())
            elif _is_below(name, "ray.tune") and missing_names(name, ()):
                self._note_missing(node, _NEW + name.removeprefix("ray"), ())

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import:
        del original_node
        self._in_import = False
        names = [_under_our_tune(alias) for alias in updated_node.names]
        names = [
            alias.with_changes(name=cst.Name("ray")) if _dotted(alias.name) in self._in_vain else alias
            for alias in names
        ]
        return updated_node.with_changes(names=names)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        self._in_import = True
        module = _dotted(node.module) or ""
        if _is_below(module, _OLD) and not node.relative:
            self._note_missing(node, _NEW + module.removeprefix(_OLD), _names_of(node))
        super().visit_ImportFrom(node)

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        self._in_import = False
        module = _module_of(original_node)
        names = _names_of(original_node)
        if not _is_below(module, "ray.tune") or original_node.relative:
            return updated_node
        ours = _NEW + module.removeprefix("ray")
        lacking, gone = missing_names(ours, names), missing_names(module, names)
        ours_has_more = set(lacking) < set(gone) or not lacking
        told = lacking if ours_has_more else {name: lacking.get(name, reason) for name, reason in gone.items()}
        for name, reason in told.items():
            self._note(original_node, " ".join(f"{module}.{name} is not in the installed Ray: {reason}".split()))
        return updated_node.with_changes(module=_expression(ours)) if ours_has_more else updated_node

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        match updated_node.body:
            case [cst.ImportFrom(names=names) as statement] if _dotted(statement.module) == "ray" and not isinstance(
                names, cst.ImportStar
            ):
                return _split_import_of_ray(updated_node, statement, names)
        return super().leave_SimpleStatementLine(original_node, updated_node)

    def leave_FormattedStringText(
        self, original_node: cst.FormattedStringText, updated_node: cst.FormattedStringText
    ) -> cst.FormattedStringText:
        del original_node
        found = _PATH_IN_F_STRING.fullmatch(updated_node.value)
        return updated_node.with_changes(value=_NEW + found["rest"]) if found else updated_node

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.SimpleString:
        del original_node
        if found := _PATH_IN_STRING.fullmatch(updated_node.value):
            return updated_node.with_changes(value=f"{found['quote']}{_NEW}{found['rest']}{found['quote']}")
        return updated_node

    # Keys of configs

    def visit_Assign(self, node: cst.Assign) -> None:
        names = [_dotted(target.target) or "" for target in node.targets]
        self._configs.append(any(_LIKE_A_CONFIG.search(name) for name in names))

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        del original_node
        self._configs.pop()
        match updated_node:
            case cst.Assign(
                targets=[cst.AssignTarget(target=cst.Subscript(value=holder, slice=[index]) as target)], value=value
            ) if _LIKE_A_CONFIG.search(_dotted(holder) or ""):
                key = index.slice.value if isinstance(index.slice, cst.Index) else None
                new = None if _string(key) in self._read else _renamed(_string(key), value)
                if new is not None and isinstance(key, cst.SimpleString):
                    name, value = new
                    where = index.with_changes(slice=cst.Index(_requoted(key, name)))
                    changed = target.with_changes(slice=[where])
                    return updated_node.with_changes(targets=[cst.AssignTarget(changed)], value=value)
        return updated_node

    def visit_Call(self, node: cst.Call) -> None:
        called = _dotted(node.func) or ""
        holder, _, method = called.rpartition(".")
        takes = method.endswith("Trainer") or (method == "update" and _LIKE_A_CONFIG.search(holder) is not None)
        self._configs.append(takes or any(_LIKE_A_CONFIG.search(_argument(each)) for each in node.args))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        self._configs.pop()
        if _dotted(original_node.func) == "ray.init":
            return _init_of_today(updated_node)
        return super().leave_Call(original_node, updated_node)

    def visit_Dict(self, node: cst.Dict) -> None:
        """Notes whether it is a config, or a section of the config around it."""
        if not self._paths or self._paths[-1] is None:
            keys = {_string(each.key) for each in node.elements if isinstance(each, cst.DictElement)}
            sure = len(keys & CommonConfig.known_keys()) >= _KEYS_OF_A_CONFIG
            is_config = sure or (any(self._configs[-1:]) and not keys.isdisjoint(_keys_of_configs()))
            self._paths.append("" if is_config else None)
        else:
            self._paths.append(self._paths[-1])

    def leave_Dict(self, original_node: cst.Dict, updated_node: cst.Dict) -> cst.Dict:
        del original_node
        self._paths.pop()
        return updated_node

    def visit_DictElement(self, node: cst.DictElement) -> None:
        around = self._paths[-1]
        key = _string(node.key)
        path = None if around is None or key is None else f"{around}{key}"
        if path is not None:
            self._note_unsupported(node, path)
        self._paths.append(None if path is None else f"{path}.")

    def leave_DictElement(self, original_node: cst.DictElement, updated_node: cst.DictElement) -> cst.DictElement:
        path = self._paths.pop()
        if path is None or _string(original_node.key) in self._read:
            return updated_node
        new = _renamed(path.removesuffix("."), updated_node.value)
        if new is None or not isinstance(original_node.key, cst.SimpleString):
            return updated_node
        name, value = new
        return updated_node.with_changes(key=_requoted(original_node.key, name), value=value)

    # What a person must decide

    def _note_missing(self, node: cst.CSTNode, module: str, names: Sequence[str]) -> None:
        for name, reason in missing_names(module, names).items():
            self._note(node, f"{module}{'.' * bool(name)}{name}: {' '.join(reason.split())}")

    def _note_unsupported(self, node: cst.DictElement, path: str) -> None:
        rule = UNSUPPORTED.get(path)
        value = _literal(node.value)
        if rule is not None and value is not _MISSING and rule.refuses(value):
            self._note(node, f"config key {path}: {value!r} is not honoured here; {rule.sentence}", CONFIG_PAGE)


def _init_of_today(call: cst.Call) -> cst.Call:
    """Returns `ray.init(...)` with the arguments that today's Ray takes, under the names that it has for them."""
    kept = []
    for argument in call.args:
        name = argument.keyword.value if argument.keyword else None
        new = _ARGUMENTS_OF_INIT.get(name or "", name)
        if name is not None and new is None:
            continue
        kept.append(argument if new == name else argument.with_changes(keyword=cst.Name(str(new))))
    if len(kept) == len(call.args):
        return call.with_changes(args=kept)
    if kept and not isinstance(call.args[-1].comma, cst.Comma):
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return call.with_changes(args=kept)


def _split_import_of_ray(
    line: cst.SimpleStatementLine, statement: cst.ImportFrom, names: Sequence[cst.ImportAlias]
) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
    """Returns `from ray import rllib, tune, x` as one line for each library."""
    made: list[cst.SimpleStatementLine] = []
    kept = []
    for alias in names:
        name = _dotted(alias.name)
        known_as = alias.asname.name if alias.asname else None
        if name == "rllib":
            bound = cst.AsName(known_as or cst.Name("rllib"))
            new: cst.BaseSmallStatement = cst.Import([cst.ImportAlias(cst.Name(_NEW), asname=bound)])
        elif name == "tune":
            new = cst.ImportFrom(cst.Name(_NEW), [alias.with_changes(comma=cst.MaybeSentinel.DEFAULT)])
        else:
            kept.append(alias)
            continue
        made.append(cst.SimpleStatementLine([new]))
    if not made:
        return line
    if kept:
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        made.insert(0, line.with_changes(body=[statement.with_changes(names=kept)]))
    else:
        made[0] = made[0].with_changes(leading_lines=line.leading_lines)
        made[-1] = made[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
    return cst.FlattenSentinel(made)


def _under_our_tune(alias: cst.ImportAlias) -> cst.ImportAlias:
    """Returns `ray.tune.x`, with or without `as y`, as `rlframe.tune.x`, where that is here."""
    name = _dotted(alias.name) or ""
    ours = _NEW + name.removeprefix("ray")
    if not _is_below(name, "ray.tune") or missing_names(ours, ()):
        return alias
    return alias.with_changes(name=_expression(ours))


class _Roots(cst.CSTVisitor):
    """The names that a program binds by importing, and those that it uses."""

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self.used: set[str] = set()

    def visit_Import(self, node: cst.Import) -> bool:
        for alias in node.names:
            self.bound.add(alias.evaluated_alias or alias.evaluated_name.split(".")[0])
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if not isinstance(node.names, cst.ImportStar):
            self.bound |= {alias.evaluated_alias or alias.evaluated_name for alias in node.names}
        return False

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self.used.add((_dotted(node) or "").split(".")[0])


def _with_missing_imports(module: cst.Module) -> cst.Module:
    """Returns the program with an import of `ray` and `rlframe` where another import bound the name before."""
    roots = _Roots()
    module.visit(roots)
    names = [name for name in ("ray", _NEW) if name in roots.used - roots.bound]
    first = next((index for index, line in enumerate(module.body) if _is_import(line)), None)
    if not names or first is None:
        return module
    before, line, behind = module.body[:first], module.body[first], module.body[first + 1 :]
    head = cst.ensure_type(cst.parse_statement(f"import {names[0]}"), cst.SimpleStatementLine)
    head = head.with_changes(leading_lines=cst.ensure_type(line, cst.SimpleStatementLine).leading_lines)
    others = [cst.parse_statement(f"import {name}") for name in names[1:]]
    return module.with_changes(body=[*before, head, *others, line.with_changes(leading_lines=[]), *behind])


def _is_import(line: cst.CSTNode) -> bool:
    """Whether a line imports, and not from the future."""
    future = m.SimpleStatementLine([m.ImportFrom(module=m.Name("__future__"))])
    return m.matches(line, m.SimpleStatementLine([m.Import() | m.ImportFrom()])) and not m.matches(line, future)


def _renamed(path: str | None, value: cst.BaseExpression) -> tuple[str, cst.BaseExpression] | None:
    """Returns another key, without its sections, and its value; None where the key stays.

    What stands in another section here (`buffer_size`) stays: it is understood where it is.
    """
    rename = RENAMES.get(path or "")
    if path is None or rename is None or len(rename.targets) != 1:
        return None
    parent, _, last = rename.targets[0].rpartition(".")
    if parent != path.rpartition(".")[0]:
        return None
    if _hands_on(rename):
        return last, value
    literal = _literal(value)
    if literal is _MISSING or literal in rename.dropped:
        return None
    return last, cst.parse_expression(json_like(rename.value(literal)))


def _hands_on(rename: Rename) -> bool:
    """Whether the value of the other name is the same."""
    probe = object()
    try:
        return rename.value(probe) is probe
    except TypeError:
        return False


def json_like(value: Any) -> str:
    """Returns a value as programs write it, with double quotes."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _literal(node: cst.BaseExpression) -> Any:
    """Returns the value of an expression that is a literal, or `_MISSING`."""
    try:
        return ast.literal_eval(cst.Module([]).code_for_node(node))
    except (ValueError, SyntaxError, TypeError):
        return _MISSING


def _requoted(old: cst.SimpleString, text: str) -> cst.SimpleString:
    """Returns a string in the quotes of another."""
    return old.with_changes(value=f"{old.prefix}{old.quote}{text}{old.quote}")


def _may_be_an_algorithm(node: cst.CSTNode | None) -> bool:
    """Returns whether an expression is an algorithm's name, or chooses between two of which one is."""
    if isinstance(node, cst.IfExp):
        return _may_be_an_algorithm(node.body) or _may_be_an_algorithm(node.orelse)
    return _string(node) in _algorithms()


def _string(node: cst.CSTNode | None) -> str | None:
    """Returns what a string literal says, or None."""
    if not isinstance(node, cst.SimpleString):
        return None
    value = node.evaluated_value
    return value if isinstance(value, str) else None


def _argument(argument: cst.Arg) -> str:
    """Returns the name of a keyword argument, or ""."""
    return argument.keyword.value if argument.keyword else ""


def _module_of(node: cst.ImportFrom) -> str:
    """Returns the module that is imported from, by Tune's path where that has what was elsewhere for a while."""
    module = _dotted(node.module) or ""
    return _ONCE_BESIDE_TUNE.get(module, module)


def _names_of(node: cst.ImportFrom) -> list[str]:
    """Returns the names that a statement imports; none for a star."""
    return [] if isinstance(node.names, cst.ImportStar) else [alias.evaluated_name for alias in node.names]


def _dotted(node: cst.CSTNode | None) -> str | None:
    """Returns the dotted name that an expression is, or None."""
    return get_full_name_for_node(node) if isinstance(node, cst.Name | cst.Attribute) else None


def _is_below(name: str, package: str) -> bool:
    """Whether a dotted name is a package or below it."""
    return name == package or name.startswith(f"{package}.")


def _expression(dotted: str) -> cst.BaseExpression:
    """Returns a dotted name as an expression."""
    return cst.parse_expression(dotted)


@cache
def _keys_of_configs() -> frozenset[str]:
    """Returns the keys of all algorithms, and their other names."""
    return frozenset({*CommonConfig.known_keys(), *(dotted for dotted in RENAMES if "." not in dotted)})


@cache
def _algorithms() -> frozenset[str]:
    """Returns the names of algorithms that Tune takes here."""
    from rlframe.agents.registry import ALGORITHMS

    return frozenset(ALGORITHMS)
