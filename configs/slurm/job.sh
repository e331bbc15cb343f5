#!/usr/bin/env bash
# A Slurm job that starts a Dask cluster on its nodes, runs a command, and ends when the command ends.
#
#   sbatch configs/slurm/job.sh dbfs run kronecker:scale=26 --source 1 --validate
#   sbatch --nodes 4 --gpus-per-node 4 configs/slurm/job.sh python examples/multi_node.py
#
# The job sets DASK_SCHEDULER_ADDRESS for the command; dbfs and distributed.Client() connect to that address. All nodes
# must share the folder that the job is submitted from, and have a Python with dbfs first in PATH. DBFS_INTERFACE names
# the network between the nodes, such as ib0; a job on one node listens on the loopback. With DASK_CONFIG=FOLDER of
# configs/tls all traffic is encrypted. The log says how to reach the dashboard.
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

if [ "$SLURM_JOB_NUM_NODES" -eq 1 ]; then
    interface=lo
else
    interface=${DBFS_INTERFACE:?names the network between the nodes, such as ib0}
fi

# One worker for each GPU, or one of 4 threads for each 4 cores if the job has no GPUs. One worker is one rank.
if [ -n "${SLURM_GPUS_ON_NODE:-}" ]; then
    worker=(dask cuda worker)
    workers=$((SLURM_JOB_NUM_NODES * SLURM_GPUS_ON_NODE))
else
    of_node=$(((SLURM_CPUS_PER_TASK + 3) / 4))
    worker=(dask worker --nworkers "$of_node" --nthreads 4)
    workers=$((SLURM_JOB_NUM_NODES * of_node))
fi

file=$PWD/dbfs-$SLURM_JOB_ID.json
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -f "$file"' EXIT

dask scheduler --interface "$interface" --dashboard-address 127.0.0.1:0 --scheduler-file "$file" --port 0 --preload dbfs.preload &
# Since 22.05 srun does not take the number of CPUs from the job.
srun --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    "${worker[@]}" --interface "$interface" --dashboard-address 127.0.0.1:0 --scheduler-file "$file" --preload dbfs.preload &

until [ -s "$file" ]; do
    sleep 0.2
    jobs %1 >/dev/null  # fails, and so ends the job, if the scheduler has ended
done
said=$(python -c 'import json, sys; told = json.load(open(sys.argv[1])); print(told["address"], told["services"]["dashboard"])' "$file")
read -r DASK_SCHEDULER_ADDRESS dashboard <<<"$said"
export DASK_SCHEDULER_ADDRESS
echo "dashboard: ssh -L 8787:127.0.0.1:$dashboard $(hostname), then http://127.0.0.1:8787/status and /dbfs" >&2
# A graph takes the workers that are present when it is loaded, so wait for all of them.
python -c 'import sys, distributed; distributed.Client().wait_for_workers(int(sys.argv[1]), timeout=600)' "$workers"

"$@"
