#!/usr/bin/env bash
# A Slurm job that starts a Dask cluster on its nodes, runs a command there, and ends with it.
#
#   sbatch configs/slurm/job.sh dbfs run kronecker:scale=26 --source 1 --validate
#   sbatch --nodes 4 --gpus-per-node 4 configs/slurm/job.sh python examples/multi_node.py
#
# The command finds the cluster by DASK_SCHEDULER_ADDRESS, as dbfs and distributed.Client() do. The folder it is submitted
# from must be on all nodes, and a Python with dbfs be first in PATH there.
#SBATCH --job-name=dbfs
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=01:00:00
#SBATCH --output=dbfs-%j.log
set -euo pipefail

if [ $# -eq 0 ]; then
    echo "usage: sbatch $0 COMMAND..." >&2
    exit 2
fi

# One worker for each GPU where the job has some, else for each core; one worker is one rank.
if [ -n "${SLURM_GPUS_ON_NODE:-}" ]; then
    worker=(dask cuda worker)
    workers=$((SLURM_JOB_NUM_NODES * SLURM_GPUS_ON_NODE))
else
    worker=(dask worker --nworkers "$SLURM_CPUS_PER_TASK" --nthreads 1)
    workers=$((SLURM_JOB_NUM_NODES * SLURM_CPUS_PER_TASK))
fi

file=$PWD/dbfs-$SLURM_JOB_ID.json
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -f "$file"' EXIT

dask scheduler --scheduler-file "$file" --port 0 --dashboard-address :0 &
srun --ntasks-per-node=1 "${worker[@]}" --scheduler-file "$file" --preload dbfs.preload &

until [ -s "$file" ]; do
    sleep 0.2
    jobs %1 >/dev/null  # ends the job where the scheduler has ended
done
DASK_SCHEDULER_ADDRESS=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$file")
export DASK_SCHEDULER_ADDRESS
# A graph takes the workers that are there when it is loaded, so all shall be.
python -c 'import sys, distributed; distributed.Client().wait_for_workers(int(sys.argv[1]), timeout=600)' "$workers"

"$@"
