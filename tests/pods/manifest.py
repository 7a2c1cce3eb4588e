"""A pod by its manifests: its words, its environment and its volumes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pods.image import Image

Manifest = dict[str, Any]
# Volumes of a group are writable for it, and new files in them belong to it.
GROUP_FOLDER = 0o2775
PUBLIC_FILE = 0o644


def of_kind(documents: Sequence[Manifest], kind: str) -> list[Manifest]:
    return [document for document in documents if document["kind"] == kind]


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Fills in $(NAME), as Kubernetes does; unknown names stay."""
    return re.sub(r"\$\((\w+)\)", lambda name: environment.get(name[1], name[0]), text)


def revision(template: Manifest) -> str:
    """A text that changes with the template of a pod."""
    return json.dumps(template, sort_keys=True)


@dataclass
class Files:
    """The ConfigMaps and Secrets that pods mount and read.

    Attributes:
        config_maps, secrets: Texts by the name of the resource and their key.
        token: Returns a new token of the service account of a pod.
    """

    token: Callable[[str], str]
    config_maps: dict[str, dict[str, str]] = field(default_factory=dict)
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)

    def content(self, volume: Manifest, pod: str) -> dict[str, str]:
        """The files of one volume, or of one source of a projected volume."""
        for kind, name, found in (
            ("configMap", "name", self.config_maps),
            ("secret", "secretName", self.secrets),
        ):
            if kind in volume:
                source = volume[kind]
                texts = found.get(source[name])
                if texts is None and not source.get("optional"):
                    raise RuntimeError(f"pod {pod}: {kind} {source[name]} does not exist")
                items = source.get("items") or [{"key": k, "path": k} for k in texts or {}]
                return {item["path"]: texts[item["key"]] for item in items} if texts else {}
        if "serviceAccountToken" in volume:
            return {volume["serviceAccountToken"]["path"]: self.token(pod)}
        if "projected" in volume:
            merged: dict[str, str] = {}
            for source in volume["projected"]["sources"]:
                # In a projected volume the field is called `name` for both.
                secret = source.get("secret", {})
                named = {**source, "secret": {**secret, "secretName": secret["name"]}} if secret else source
                merged |= self.content(named, pod)
            return merged
        raise RuntimeError(f"pod {pod}: a volume of the kind {sorted(volume)} is not supported")


def environment(container: Manifest, pod: Manifest, files: Files, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a container: that of the image and of Kubernetes, then its own."""
    result = dict(given)
    for entry in container.get("env", []):
        if "value" in entry:
            text = str(entry["value"])
        elif "fieldRef" in entry["valueFrom"]:
            text = _field(pod, entry["valueFrom"]["fieldRef"]["fieldPath"])
        else:
            source = entry["valueFrom"]["secretKeyRef"]
            text = files.secrets[source["name"]][source["key"]]
        result[entry["name"]] = expand(text, result)
    return result


def _field(pod: Manifest, path: str) -> str:
    value: Any = pod
    for name in path.split("."):
        value = value[name]
    return str(value)


def words(container: Manifest, image: Image, environment: Mapping[str, str]) -> list[str]:
    """The words of a container: `command` replaces both parts of the image's command, `args` the second one."""
    command, arguments = container.get("command"), container.get("args")
    if not command:
        command, arguments = image.entrypoint, arguments or image.arguments
    return [expand(word, environment) for word in [*command, *(arguments or [])]]


def write_volume(volume: Manifest, pod: str, files: Files, folder: Path, group: int) -> None:
    """Makes the folder of a volume that belongs to a pod alone."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, 0, group)
    folder.chmod(GROUP_FOLDER)
    if "emptyDir" in volume:
        return
    source = next(volume[kind] for kind in ("configMap", "secret", "projected") if kind in volume)
    mode = source.get("defaultMode", PUBLIC_FILE)
    for name, text in files.content(volume, pod).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.touch(0o600)
        file.write_text(text)
        os.chown(file, 0, group)
        file.chmod(mode)
