#!/bin/bash
# The same command in every task of a SLURM array. Commands on shards share their work by claims:
#
#   sbatch --array=1-32 slurm-array.sh features small --data.dir data/mine --data.train shards
#   sbatch --array=1-32 slurm-array.sh probe runs/big data/mine/shards -o probe.jsonl
#
# %a is the number of the task, for tasks that differ, such as runs with several seeds:
#
#   sbatch --array=1-3 slurm-array.sh train small --seed %a --out runs/seed-%a --data.dir data/mine
#
# A task that was killed is started again by SLURM (--requeue), or by you: what is done is not done again.
#SBATCH --job-name=wildctc
#SBATCH --array=1-4
#SBATCH --ntasks=1
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%A-%a.log
set -euo pipefail

# Here: module load …, source .venv/bin/activate

words=("${@//%a/$SLURM_ARRAY_TASK_ID}")
if [ "${SLURM_GPUS_ON_NODE:-1}" -gt 1 ] && [ "${words[0]}" = train ]; then  # --gpus-per-task=4 is a run on four GPUs
    exec torchrun --standalone --nproc-per-node "$SLURM_GPUS_ON_NODE" -m wildctc "${words[@]}"
fi
exec wildctc "${words[@]}"
