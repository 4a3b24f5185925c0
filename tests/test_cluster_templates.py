"""The templates of examples/cluster run: here with two processes on one machine, which stand for two machines."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.tones import make_corpus, read_rows

from wildctc.corpora.packing import Packing, pack

TEMPLATES = Path(__file__).parents[1] / "examples" / "cluster"
SCRIPTS = sorted(TEMPLATES.glob("*.sh"))
FAST = ["--training.epochs", "1", "--data.workers", "0", "--spec_augment.freq_masks", "0"]
SRUN = """#!/bin/bash
# Runs its words once for each of two machines.
shift
for node in 0 1; do SLURM_NODEID=$node "$@" & started+=($!); done
for process in "${started[@]}"; do wait "$process" || exit 1; done
"""


def environment(folder: Path, **changes: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}", **changes}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def assert_trained_by_two(run: Path, output: str) -> None:
    assert len(read_rows(run / "metrics.jsonl")) == 1, output
    assert (run / "model/model.safetensors").is_file()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_one_that_bash_and_sbatch_read(script):
    subprocess.run(["bash", "-n", script], check=True)
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    options = [number for number, line in enumerate(lines) if line.startswith("#SBATCH ")]
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert options
    assert max(options) < first  # sbatch stops looking at the first command
    assert os.access(script, os.X_OK)


@pytest.mark.slow
def test_the_slurm_script_trains_on_two_machines(tmp_path):
    make_corpus(tmp_path, {"train": 12, "dev": 2})
    pack(tmp_path / "train.jsonl", tmp_path / "shards", Packing(size=3))
    program(tmp_path / "bin/srun", SRUN)
    program(tmp_path / "bin/scontrol", "#!/bin/bash\necho localhost\nseq -f machine-%g 20000\n")
    words = [str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "run"), "--data.train", "shards", *FAST]
    slurm = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_ID": str(free_port() - 20000), "SLURM_NNODES": "2"}
    done = subprocess.run(
        [TEMPLATES / "slurm-train.sh", *words],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        env=environment(tmp_path / "bin", **slurm, SLURM_GPUS_ON_NODE="1", SLURM_CPUS_PER_TASK="1"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert_trained_by_two(tmp_path / "run", done.stdout)


@pytest.mark.slow
def test_tasks_of_a_slurm_array_share_the_work_or_have_their_number(tmp_path):
    make_corpus(tmp_path, {"train": 12})
    script = str(TEMPLATES / "slurm-array.sh")
    words = ["pack", "train.jsonl", "shards", "--size", "2", "--workers", "0"]
    tasks = [
        subprocess.Popen([script, *words], cwd=tmp_path, env=environment(tmp_path, SLURM_ARRAY_TASK_ID=str(task)))
        for task in (1, 2)
    ]
    assert [task.wait() for task in tasks] == [0, 0]
    assert len(list((tmp_path / "shards").glob("*.tar"))) == 6
    own = ["pack", "train.jsonl", "own-%a", "--seed", "%a", "--workers", "0"]
    subprocess.run([script, *own], cwd=tmp_path, check=True, env=environment(tmp_path, SLURM_ARRAY_TASK_ID="7"))
    assert (tmp_path / "own-7/shards.json").is_file()


def container(template: dict) -> dict:
    [found] = template["spec"]["containers"]
    volumes = {volume["name"] for volume in template["spec"]["volumes"]}
    assert {mount["name"] for mount in found["volumeMounts"]} == volumes
    assert all(isinstance(variable["value"], str) for variable in found.get("env", []))
    return found


@pytest.mark.slow
def test_the_pods_of_the_pytorchjob_train_together(tmp_path):
    """The command of the pods, with the variables that the operator sets (kubeflow/training-operator, envvar.go)."""
    job = yaml.safe_load((TEMPLATES / "kubernetes-train.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert replicas.keys() == {"Master", "Worker"}
    assert replicas["Master"]["replicas"] == 1
    pod = container(replicas["Master"]["template"])
    assert container(replicas["Worker"]["template"]) == pod
    assert pod["name"] == "pytorch"  # the operator looks for it
    given = {variable["name"]: variable["value"] for variable in pod["env"]}
    assert int(given["NODES"]) == sum(part["replicas"] for part in replicas.values())
    assert int(given["GPUS"]) == pod["resources"]["limits"]["nvidia.com/gpu"]

    make_corpus(tmp_path / "data/mine", {"train": 12, "dev": 2}).rename(tmp_path / "small")
    pack(tmp_path / "data/mine/train.jsonl", tmp_path / "data/mine/shards", Packing(size=3))
    words = [*pod["command"], pod["args"][0].rstrip() + " " + " ".join(FAST)]
    operator = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    pods = [
        subprocess.Popen(words, cwd=tmp_path, env=environment(tmp_path, **given | {"GPUS": "1"}, **operator, RANK=rank))
        for rank in ("0", "1")
    ]
    assert [pod.wait() for pod in pods] == [0, 0]
    assert_trained_by_two(tmp_path / "runs/big", "")


@pytest.mark.slow
def test_the_pods_of_the_job_share_the_features(tmp_path):
    job = yaml.safe_load((TEMPLATES / "kubernetes-share.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert job["spec"]["completions"] == job["spec"]["parallelism"] > 1
    assert job["spec"]["template"]["spec"]["restartPolicy"] in ("OnFailure", "Never")  # a Job allows no other
    pod = container(job["spec"]["template"])
    make_corpus(tmp_path / "data/mine", {"train": 12, "dev": 2}).rename(tmp_path / "small")
    pack(tmp_path / "data/mine/train.jsonl", tmp_path / "data/mine/shards", Packing(size=3))
    pods = [subprocess.Popen(pod["command"], cwd=tmp_path, env=environment(tmp_path)) for _ in range(2)]
    assert [pod.wait() for pod in pods] == [0, 0]
    assert len(list((tmp_path / "data/mine/features/packed").rglob("*.safetensors"))) == 4
