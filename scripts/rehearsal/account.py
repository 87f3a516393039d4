"""An account on paper: the deployed stacks, their exports and the resources left behind.

`deploy` updates the stacks in the order of `cdk deploy --all`: the stack that exports comes before
those that import, and a stack that is no longer synthesised stays as it is. After a finding the
account goes on as if the update had succeeded, so one rehearsal shows every fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scripts.rehearsal.findings import Finding, Level
from scripts.rehearsal.registry import LOGS, Type, at, type_of
from scripts.rehearsal.values import Scope, imports, references

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scripts.rehearsal.templates import Application, Stack

Name = tuple[str, str]
"""Type, and the properties that name a resource, as text."""
_KEEPS: Final = frozenset({"Retain", "RetainExceptOnCreate", "Snapshot"})
_TABLES: Final = ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable")


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource that exists.

    Attributes:
        generation: counts the resources of this logical id, in every stack of the name.
        body: its part of the template, with its properties resolved.
        names: what it takes for itself in the account.
        highest: the highest numbers so far, by path, of what can rise only.
    """

    stack: str
    logical_id: str
    type: Type
    generation: int
    body: Mapping[str, Any]
    names: frozenset[Name]
    highest: Mapping[tuple[str, ...], int] = field(default_factory=dict)

    @property
    def properties(self) -> Mapping[str, Any]:
        """The properties, resolved."""
        found: Mapping[str, Any] = self.body.get("Properties", {})
        return found

    @property
    def place(self) -> str:
        """Stack and logical id."""
        return f"{self.stack}/{self.logical_id}"


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """One stack that exists."""

    resources: Mapping[str, Resource]
    exports: Mapping[str, Any]
    outputs: Mapping[str, Any]
    imports: frozenset[str]


@dataclass(kw_only=True)
class Account:
    """The state of one account in one region."""

    stacks: dict[str, Deployed] = field(default_factory=dict)
    left_behind: dict[Name, str] = field(default_factory=dict)
    _generations: dict[tuple[str, str], int] = field(default_factory=dict)
    _incarnations: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Account:
        """Return an account in the same state."""
        return Account(
            stacks=dict(self.stacks),
            left_behind=dict(self.left_behind),
            _generations=dict(self._generations),
            _incarnations=dict(self._incarnations),
        )

    def deploy(self, application: Application) -> list[Finding]:
        """Create or update every stack; return what would be refused or lost."""
        found: list[Finding] = []
        for stack in application:
            found += self._update(stack)
        for name in sorted(self.stacks.keys() - {stack.name for stack in application}):
            found.append(
                Finding(
                    level=Level.NOTE,
                    rule="stack-stays",
                    stack=name,
                    subject=name,
                    text="it is no longer synthesised, so it stays deployed as it is",
                    remedy=f"delete it when nobody needs it: "
                    f"aws cloudformation delete-stack --stack-name {name}",
                )
            )
        return found

    def delete(self, name: str) -> list[Finding]:
        """Delete a stack; what its template retains is left behind."""
        gone = self.stacks[name]
        found = [
            _refused(
                "export-gone",
                name,
                export,
                f"{', '.join(users)} imports it",
                "delete the importing stacks first",
            )
            for export in gone.exports
            if (users := self._importers(export, name))
        ]
        lost = []
        for resource in gone.resources.values():
            if resource.body.get("DeletionPolicy") in _KEEPS:
                self.left_behind |= dict.fromkeys(resource.names, resource.place)
            elif resource.type.stateful:
                lost.append(resource.logical_id)
        if lost:
            found.append(
                Finding(
                    level=Level.NOTE,
                    rule="data-deleted",
                    stack=name,
                    subject=name,
                    text=f"deleting the stack deletes the data of {', '.join(lost)}",
                    remedy="save them first, if anybody needs them",
                )
            )
        del self.stacks[name]
        return found

    def delete_all(self, names: Iterable[str]) -> list[Finding]:
        """Delete stacks, each after those of them that import from it."""
        left = set(names)
        found: list[Finding] = []
        while left:
            free = {
                name
                for name in left
                if not any(left & {*self._importers(e, name)} for e in self.stacks[name].exports)
            }
            for name in sorted(free or left):
                found += self.delete(name)
            left -= free or left
        return found

    def _importers(self, export: str, exporter: str) -> list[str]:
        return sorted(
            name
            for name, stack in self.stacks.items()
            if name != exporter and export in stack.imports
        )

    def exported(self, name: str) -> Any:
        """Return the value of an export, or None."""
        for stack in self.stacks.values():
            if name in stack.exports:
                return stack.exports[name]
        return None

    def _output(self, stack: str, output: str) -> Any:
        return self.stacks[stack].outputs.get(output) if stack in self.stacks else None

    def _update(self, stack: Stack) -> list[Finding]:
        before = self.stacks.get(stack.name)
        if before is None:
            self._incarnations[stack.name] = self._incarnations.get(stack.name, 0) + 1
        update = _Update(account=self, stack=stack, before=before)
        found = list(update.run())
        self.stacks[stack.name] = update.after
        return found

    def scope(self, stack: Stack) -> Scope:
        """Return the scope of a stack's values."""
        return Scope(
            stack=stack.name,
            incarnation=self._incarnations.get(stack.name, 1),
            parameters=stack.template.get("Parameters", {}),
            generation=lambda id_: self._generations.get((stack.name, id_), 1),
            exported=self.exported,
            output=self._output,
        )

    def next_generation(self, stack: str, logical_id: str) -> int:
        """Count one more resource of a logical id."""
        key = (stack, logical_id)
        self._generations[key] = self._generations.get(key, 0) + 1
        return self._generations[key]

    def takers(self, name: Name) -> Iterator[tuple[str, str]]:
        """Yield (stack, place) of all that have a name; what is left behind has no stack."""
        for key, stack in self.stacks.items():
            for resource in stack.resources.values():
                if name in resource.names:
                    yield key, resource.place
        if name in self.left_behind:
            yield "", f"{self.left_behind[name]}, left behind"


class _Update:
    """The update of one stack: first what is new, then what goes, then the exports."""

    def __init__(self, *, account: Account, stack: Stack, before: Deployed | None) -> None:
        self._account = account
        self._stack = stack
        self._old: Mapping[str, Resource] = before.resources if before else {}
        self._before = before
        self._scope = account.scope(stack)
        self._new: dict[str, Resource] = {}
        self._replaced: set[str] = set()
        self.after = Deployed(resources={}, exports={}, outputs={}, imports=frozenset())

    def run(self) -> Iterator[Finding]:
        """Yield the findings; afterwards `after` is the stack's state."""
        asked = frozenset(imports(self._stack.template, self._scope.resolve))
        for name in sorted(asked):
            if self._account.exported(name) is None:
                yield self._refused(
                    "export-missing", name, "it is imported, and no stack exports it", "export it"
                )
        ordered, circle = _by_dependency(self._stack.resources)
        if circle:
            yield self._refused(
                "cycle", circle[0], f"{' -> '.join(circle)} depend on each other", "drop one"
            )
        for logical_id in ordered:
            yield from self._take(logical_id)
        yield from self._taken_names()
        for logical_id in sorted(self._old.keys() - self._new.keys()):
            yield from self._remove(self._old[logical_id])
        outputs = self._stack.template.get("Outputs", {})
        values = {key: self._scope.resolve(one.get("Value")) for key, one in outputs.items()}
        exports = {
            str(self._scope.resolve(one["Export"]["Name"])): key
            for key, one in outputs.items()
            if "Export" in one
        }
        self.after = Deployed(
            resources=self._new,
            exports={name: values[key] for name, key in exports.items()},
            outputs=values,
            imports=asked,
        )
        yield from self._exports({name: outputs[key]["Value"] for name, key in exports.items()})

    def _refused(self, rule: str, subject: str, text: str, remedy: str) -> Finding:
        return _refused(rule, self._stack.name, subject, text, remedy)

    def _undecided(self, rule: str, subject: str, text: str, remedy: str) -> Finding:
        return Finding(
            level=Level.UNDECIDED,
            rule=rule,
            stack=self._stack.name,
            subject=subject,
            text=text,
            remedy=remedy,
        )

    def _take(self, logical_id: str) -> Iterator[Finding]:
        """Create, keep, update or replace one resource of the new template."""
        body = self._scope.resolve(dict(self._stack.resources[logical_id]))
        old = self._old.get(logical_id)
        type_ = type_of(body["Type"])
        if "Condition" in body:
            yield self._undecided(
                "condition",
                logical_id,
                "it stands under a condition, and is taken to exist",
                "decide in code, not in the template",
            )
        replaced = False
        if old is not None:
            reasons = list(self._reasons_to_replace(old, body, type_))
            yield from self._judge_replacement(old, body, reasons)
            replaced = any(certain for certain, _ in reasons)
        names = _names(type_, body.get("Properties", {}))
        fixed = [name for _, name in names if f"<{self._stack.name}/" not in name]
        if old is None and fixed and body.get("DeletionPolicy") == "Retain":
            yield self._refused(
                "create-repeated",
                logical_id,
                "it has a fixed name and policy Retain: a deployment that fails leaves it, and the"
                " next one finds its name taken",
                "use RetainExceptOnCreate, or no fixed name",
            )
        generation = (
            self._account.next_generation(self._stack.name, logical_id)
            if replaced or old is None
            else old.generation
        )
        if old is not None and replaced:
            self._replaced.add(logical_id)
        highest = self._highest(None if replaced else old, body.get("Properties", {}), type_)
        for path, most in highest.items():
            if any(number < most for number in at(body.get("Properties", {}), path)):
                yield self._refused(
                    "lowered",
                    logical_id,
                    f"its {'.'.join(path)} was {most} once, and AWS never lowers it",
                    "leave it out, or do not go below its highest value",
                )
        self._new[logical_id] = Resource(
            stack=self._stack.name,
            logical_id=logical_id,
            type=type_,
            generation=generation,
            body=body,
            names=names,
            highest=highest,
        )

    def _highest(
        self, old: Resource | None, properties: Mapping[str, Any], type_: Type
    ) -> dict[tuple[str, ...], int]:
        """Return the highest numbers so far of what can rise only."""
        before = old.highest if old is not None else {}
        return {
            path: max([*at(properties, path), *([before[path]] if path in before else [])])
            for path in type_.only_rise
            if at(properties, path) or path in before
        }

    def _reasons_to_replace(
        self, old: Resource, body: Mapping[str, Any], type_: Type
    ) -> Iterator[tuple[bool, str]]:
        """Yield (certain, reason) for each change that replaces a resource, or may."""
        new = body.get("Properties", {})
        if old.type.name != type_.name:
            yield True, f"its type changes from {old.type.name}"
            return
        if not type_.known and old.properties != new:
            yield False, f"{type_.name} changes, of which the registry has no schema"
        for certain, paths in ((True, type_.create_only), (False, type_.perhaps_create_only)):
            for path in paths:
                if at(old.properties, path) != at(new, path):
                    yield certain, f"its {'.'.join(path)} changes"

    def _judge_replacement(
        self, old: Resource, body: Mapping[str, Any], reasons: list[tuple[bool, str]]
    ) -> Iterator[Finding]:
        why = "; ".join(reason for _, reason in reasons)
        if old.type.name != body["Type"]:
            yield self._refused(
                "type-changed", old.logical_id, why, "give the new resource another logical id"
            )
        yield from self._indexes(old, body)
        if not reasons:
            return
        certain = any(certain for certain, _ in reasons)
        kept = {old.body.get("UpdateReplacePolicy"), body.get("UpdateReplacePolicy")} <= _KEEPS
        if old.type.stateful and not (kept and old.type.name in LOGS):
            yield self._refused(
                "data-replaced",
                old.logical_id,
                f"{why}: it {'is' if certain else 'may be'} replaced, and "
                + ("the stack goes on with an empty one" if kept else "its data are deleted"),
                "leave the property as it is, or move the data first",
            )
        elif old.type.stateful:
            yield self._note("data-left-behind", old.logical_id, f"{why}: the old one is left")
        elif not certain:
            yield self._undecided(
                "perhaps-replaced",
                old.logical_id,
                f"{why}: whether it is replaced depends on its state",
                "read the type's documentation",
            )
        if certain and old.type.stateful and kept:
            self._account.left_behind |= dict.fromkeys(old.names, old.place)

    def _note(self, rule: str, subject: str, text: str) -> Finding:
        return Finding(
            level=Level.NOTE,
            rule=rule,
            stack=self._stack.name,
            subject=subject,
            text=text,
            remedy="delete it when its data are not needed",
        )

    def _indexes(self, old: Resource, body: Mapping[str, Any]) -> Iterator[Finding]:
        """DynamoDB makes or deletes one index in an update."""
        if old.type.name not in _TABLES:
            return
        path = ("GlobalSecondaryIndexes", "*")
        before, after = (
            {
                one["IndexName"]: (one["KeySchema"], one["Projection"])
                for one in at(properties, path)
            }
            for properties in (old.properties, body.get("Properties", {}))
        )
        changed = {name for name in before.keys() & after.keys() if before[name] != after[name]}
        if changed or len(before.keys() ^ after.keys()) > 1:
            yield self._refused(
                "indexes",
                old.logical_id,
                f"indexes {', '.join(sorted(changed | (before.keys() ^ after.keys())))} change at"
                " once; an update makes or deletes one, and changes none",
                "take a release for each index, under a new name",
            )

    def _taken_names(self) -> Iterator[Finding]:
        """New resources are created before old ones are deleted, but for some types."""
        for logical_id, resource in self._new.items():
            old = self._old.get(logical_id)
            is_new = old is None or logical_id in self._replaced
            for name in sorted(resource.names):
                if not is_new and old is not None and name in old.names:
                    continue
                takers = [
                    place
                    for stack, place in self._account.takers(name)
                    if not (place == resource.place and resource.type.deletes_first)
                ]
                takers += [
                    other.place
                    for other in self._new.values()
                    if other is not resource
                    and name in other.names
                    and other.logical_id not in self._old
                    and other.logical_id < logical_id
                ]
                if takers:
                    yield self._refused(
                        "name-taken",
                        logical_id,
                        f"{resource.type.name} {name[1]} is there already: {', '.join(takers)}",
                        "choose another name, or delete the other one first",
                    )

    def _remove(self, old: Resource) -> Iterator[Finding]:
        kept = old.body.get("DeletionPolicy") in _KEEPS
        if kept:
            self._account.left_behind |= dict.fromkeys(old.names, old.place)
        if not old.type.known:
            yield self._undecided(
                "custom-removed",
                old.logical_id,
                f"{old.type.name} is removed, and its handler decides what that does",
                "read the handler",
            )
        if not old.type.stateful:
            return
        if not kept:
            yield self._refused(
                "data-deleted",
                old.logical_id,
                f"{old.type.name} leaves the stack and is deleted with its data",
                "keep it, or retain it and move the data first",
            )
        elif old.type.name in LOGS:
            yield self._note("data-left-behind", old.logical_id, "it leaves the stack and is kept")
        else:
            yield self._refused(
                "data-abandoned",
                old.logical_id,
                f"{old.type.name} leaves the stack and is kept; if it comes back, it is empty",
                "keep it in the stack in every setting",
            )

    def _exports(self, sources: Mapping[str, Any]) -> Iterator[Finding]:
        account, name = self._account, self._stack.name
        for export, value in self.after.exports.items():
            others = [
                key for key, s in account.stacks.items() if key != name and export in s.exports
            ]
            if others:
                yield self._refused(
                    "export-taken", export, f"{others[0]} exports it", "choose another name"
                )
            users = account._importers(export, name)  # noqa: SLF001 - two halves of one module
            was = self._before.exports.get(export) if self._before else None
            if not users or was is None:
                continue
            if was != value:
                yield self._refused(
                    "export-changed",
                    export,
                    f"{', '.join(users)} imports it, and its value changes from {was} to {value}",
                    "export the new value beside the old one",
                )
            for id_, attribute in references(sources[export]):
                yield from self._unstable(export, id_, attribute, users)
        for export in sorted((self._before.exports if self._before else {}).keys()):
            users = account._importers(export, name)  # noqa: SLF001 - two halves of one module
            if export not in self.after.exports and users:
                yield self._refused(
                    "export-gone",
                    export,
                    f"{', '.join(users)} imports it until after this stack's update",
                    "keep it: self.export_value(...) in the stack that exports it",
                )

    def _unstable(
        self, export: str, logical_id: str, attribute: str, users: list[str]
    ) -> Iterator[Finding]:
        """Say whether an update in place changes an attribute that others import."""
        old, new = self._old.get(logical_id), self._new.get(logical_id)
        if old is None or new is None or attribute == "Ref" or old.properties == new.properties:
            return
        follows = new.type.attribute_follows(attribute)
        if follows is None:
            yield self._undecided(
                "attribute",
                export,
                f"{attribute} of {logical_id} may change with its properties;"
                f" {', '.join(users)} imports it",
                "read the type's documentation",
            )
        elif any(old.properties.get(one) != new.properties.get(one) for one in follows):
            yield self._refused(
                "export-changed",
                export,
                f"{', '.join(users)} imports it, and {attribute} of {logical_id} changes",
                "leave the property as it is",
            )


def _refused(rule: str, stack: str, subject: str, text: str, remedy: str) -> Finding:
    return Finding(
        level=Level.REFUSED, rule=rule, stack=stack, subject=subject, text=text, remedy=remedy
    )


def _names(type_: Type, properties: Mapping[str, Any]) -> frozenset[Name]:
    found = set()
    for paths in type_.names:
        values = [at(properties, path) for path in paths]
        if all(values):
            found.add((type_.name, " ".join(str(one) for value in values for one in value)))
    return frozenset(found)


def _by_dependency(resources: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the logical ids, each after all that it refers to, and the first circle, if any."""
    ordered: dict[str, None] = {}
    path: list[str] = []
    circle: list[str] = []

    def visit(logical_id: str) -> None:
        if logical_id in path:
            circle[:] = circle or [*path[path.index(logical_id) :], logical_id]
        if logical_id in path or logical_id in ordered:
            return
        path.append(logical_id)
        body = resources[logical_id]
        depends = body.get("DependsOn", [])
        for name in [
            *(depends if isinstance(depends, list) else [depends]),
            *(name for name, _ in references(body.get("Properties", {}))),
        ]:
            if name in resources:
                visit(name)
        ordered[path.pop()] = None

    for logical_id in resources:
        visit(logical_id)
    return list(ordered), circle
