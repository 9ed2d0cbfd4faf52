"""What must hold between the settings of a receiver: each kind has its own, and what is reachable from outside is protected.

Pure: the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.core.addresses import is_loopback
from tidegate.core.buffers import least_buffer_bytes
from tidegate.core.receivers.watermark import HIGH, LOW

SAFE_OVERLAP_S = 30
"""Seconds that Airflow needs at most, on a machine that is not overloaded, from the start of a run to its instances."""

REQUIRED = {"http": "listen", "tcp_server": "listen", "socket": "connect", "file": "file"}
"""The setting without which a receiver of that kind has nothing to receive from."""
TAKEN = {
    "http": {"listen", "http", "key", "token", "tls", "overlap"},
    "tcp_server": {"listen", "tls", "overlap"},
    "socket": {"connect", "tls"},
    "file": {"file"},
}
OF_A_CLASS = {"arguments", "overlap"}
"""Settings that a class of one's own takes, which gets everything else as arguments."""
OF_KINDS = sorted(set.union(OF_A_CLASS, *TAKEN.values()))


@dataclass(frozen=True)
class SettingsOfKind:
    """A receiver has the settings of its kind, and none of another's."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """As JSON Schema."""
        rules = []
        for kind, taken in TAKEN.items():
            needs = REQUIRED[kind]
            properties: dict[str, Any] = {name: {"type": "null"} for name in OF_KINDS if name not in taken}
            properties[needs] = {"type": "object"}
            if kind == "file":
                properties["instances"] = {"const": 1}
            rules.append(_when({"const": kind}, {"required": [needs], "properties": properties}))
        others = {name: {"type": "null"} for name in OF_KINDS if name not in OF_A_CLASS}
        return {"allOf": [*rules, _when({"pattern": ":"}, {"properties": others})]}

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence for each setting of another kind, and for the one that is missing."""
        taken, needs = TAKEN.get(held.kind, OF_A_CLASS), REQUIRED.get(held.kind)
        faults = [
            f"{path}{name}: is no setting of kind {held.kind}; remove it"
            for name in OF_KINDS
            if name not in taken and getattr(held, name) is not None
        ]
        if needs is not None and getattr(held, needs) is None:
            faults.append(f"{path}{needs}: required by kind {held.kind}, but missing; expected a mapping of settings")
        if held.kind == "file" and held.instances > 1:
            faults.append(
                f"{path}instances: a file is followed by one instance, got {held.instances}; write a file for each host"
            )
        return faults


def _when(kind: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    return {"if": {"required": ["kind"], "properties": {"kind": kind}}, "then": then}


@dataclass(frozen=True)
class TlsOfKind:
    """A receiver that listens shows a certificate; a certificate has its key."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """As JSON Schema: nothing beside the other relations of a receiver, which it would replace."""
        return {}

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence for each file that is missing."""
        if held.tls is None:
            return []
        files = {"certificate": held.tls.certificate, "key": held.tls.key}
        if held.listen is None and not any(files.values()):
            return []
        why = "a receiver that listens has a certificate with its key" if held.listen else "a certificate has its key"
        return [f"{path}tls.{name}: required, but missing; {why}" for name, file in files.items() if file is None]


@dataclass(frozen=True)
class Reachable:
    """What is not on loopback is encrypted, and senders prove who they are."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """As JSON Schema: nothing, since a schema does not know loopback."""
        return {}

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence for each way in that is open to others."""
        faults = []
        if held.listen is not None and not is_loopback(held.listen.host):
            where = f"{path}listen.host: {held.listen.host} is not of loopback"
            proof = (
                f"{path}token or {path}tls.ca (client certificates)"
                if held.kind == "http"
                else f"{path}tls.ca (client certificates)"
            )
            if held.tls is None:
                faults.append(f"{where}, which requires {path}tls; set it, or listen at 127.0.0.1")
            if held.token is None and (held.tls is None or held.tls.ca is None):
                faults.append(f"{where}, which requires {proof}; set it, or listen at 127.0.0.1")
        if held.connect is not None and held.tls is None and not is_loopback(held.connect.host):
            faults.append(f"{path}connect.host: {held.connect.host} is not of loopback, which requires {path}tls; set it")
        return faults


@dataclass(frozen=True)
class FitsBuffer:
    """The buffer has room for a block, and for two of the longest records: one that is on its way, and the one that is read."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """As JSON Schema: nothing, since a schema cannot compare two settings."""
        return {}

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence for each that does not fit."""
        faults = []
        block, buffer = f"{path}block.bytes: {held.block.bytes}", f"{path}buffer_bytes {held.buffer_bytes}"
        if held.block.bytes > held.buffer_bytes:
            faults.append(f"{block} is above {buffer}; lower it, or raise the other")
        least = least_buffer_bytes(held.max_record_bytes)
        if least > held.buffer_bytes:
            faults.append(
                f"{path}buffer_bytes: {held.buffer_bytes} has no room for two records of {path}max_record_bytes "
                f"{held.max_record_bytes}; set it to at least {least}, or lower the other"
            )
        return faults


OF_POLICIES = {
    "static": set[str](),
    "rate": {"pipeline", "safe_rate", "silence"},
    "watermark": {"pipeline", "max_backlog", "high", "low", "safe_rate", "silence"},
    "credit": {"pipeline", "max_backlog", "safe_rate", "silence"},
}
"""The settings that each policy takes."""
NEEDED = ("pipeline", "max_backlog")
"""Those of them that a policy requires."""


@dataclass(frozen=True)
class SettingsOfBackpressure:
    """The policy has the settings that it needs, and none of another's."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """As JSON Schema. Without `policy`, it is `static`."""
        every = sorted(set.union(*OF_POLICIES.values()))
        return {
            "allOf": [
                {
                    "if": {"properties": {"policy": {"const": name}}, "required": [] if name == "static" else ["policy"]},
                    "then": {
                        "required": [setting for setting in NEEDED if setting in taken],
                        "properties": {other: {"type": "null"} for other in every if other not in taken},
                    },
                }
                for name, taken in OF_POLICIES.items()
            ]
        }

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence for each setting of another policy, and for each that is missing."""
        taken = OF_POLICIES[held.policy]
        every = sorted(set.union(*OF_POLICIES.values()))
        others = [name for name in every if name not in taken and getattr(held, name) is not None]
        missing = [name for name in NEEDED if name in taken and getattr(held, name) is None]
        return [
            *(f"{path}{name}: is no setting of policy {held.policy}; remove it" for name in others),
            *(f"{path}{name}: required by policy {held.policy}, but missing" for name in missing),
        ]


@dataclass(frozen=True)
class LowBelowHigh:
    """Where senders go on is below where they stop."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """As JSON Schema: nothing, since a schema cannot compare two settings."""
        return {}

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence, where it is not."""
        high, low = held.high or HIGH, held.low or LOW
        return [] if low < high else [f"{path}low: {low} is not below {path}high {high}; lower it, or raise the other"]
