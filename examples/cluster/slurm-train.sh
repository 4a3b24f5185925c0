#!/bin/bash
# One run on several machines with SLURM. The words are those of `wildctc train`:
#
#   sbatch slurm-train.sh small --out runs/big --data.dir data/mine --data.train shards
#
# Give it again to resume. `sbatch --dependency=singleton`, given several times, runs one after the other, for runs that
# take longer than --time. A lost machine ends the job; with --requeue SLURM starts it again, and it resumes.
#SBATCH --job-name=wildctc
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail

# Here: module load …, source .venv/bin/activate

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p) # not head: it ends before scontrol, which then fails
port=$((20000 + SLURM_JOB_ID % 20000))
export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / ${SLURM_GPUS_ON_NODE:-1}))

# A task on each machine starts torchrun, which starts a process for each GPU.
srun --kill-on-bad-exit=1 bash -c '
    exec torchrun --nnodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" --nproc-per-node "${SLURM_GPUS_ON_NODE:-1}" \
        --master-addr "$1" --master-port "$2" -m wildctc train "${@:3}"' start "$first" "$port" "$@"
