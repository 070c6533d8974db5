#!/bin/bash
# Written by: python -m bench slurm --nodes 1,2,4,8 --ppn 32 --cores 2 --fabric infiniband --launcher pmix --launches 5 -- --max 16M
#SBATCH --job-name=allreduce
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=32
#SBATCH --cpus-per-task=2
#SBATCH --array=1-5%1
#SBATCH --time=00:30:00
#SBATCH --signal=B:USR1@120
#SBATCH --output=%x-%j.out
#SBATCH --exclusive
#SBATCH --no-requeue

export OMP_NUM_THREADS=1
export NUMBA_NUM_THREADS=1
export SRUN_CPUS_PER_TASK=2
export OMPI_MCA_pml=ucx
export MPIR_CVAR_CH4_NETMOD=ucx
export I_MPI_OFI_PROVIDER=mlx
counts=${*:-1 2 4 8}
results=results
preflight=(preflight --ppn 32 --cores 2)
sweep=(sweep --max 16M)
launch() { exec srun --mpi=pmix --nodes=$1 --ntasks=$(($1 * 32)) --ntasks-per-node=32 --cpu-bind=cores --kill-on-bad-exit=1 --wait=60 "${@:2}"; }

set -euo pipefail

# Outside a job: submit one for each count, which starts when the one before has ended, however it did.
if [ -z "${SLURM_JOB_ID:-}" ]; then
    for nodes in $counts; do
        job=$(sbatch --parsable --nodes="$nodes" ${job:+--dependency="afterany:$job"} "$0" "$nodes")
        job=${job%%;*}
        echo "job $job: $nodes nodes"
    done
    exit
fi

results=$results/$SLURM_JOB_NAME-${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
mkdir -p "$results"
echo "results in $results"
cp "$0" "$results/job.sh"
exec >"$results/log.txt" 2>&1
scontrol show job "$SLURM_JOB_ID"

# Every launcher passes USR2 on to all ranks; MPICH takes USR1 for itself.
stop() {
    trap '' USR1 TERM
    echo "$1: stopped; what was measured is kept"
    if [ "$step" ]; then kill -USR2 "$step" && wait "$step"; fi || true
    exit 124
}
step=
trap 'stop "time is nearly up"' USR1
trap 'stop "ended by Slurm"' TERM

# In the background, for traps wait until a command in the foreground has ended.
run() {
    launch "$@" &
    step=$!
    wait "$step"
}

status=0
for nodes in $counts; do
    run "$nodes" python -m bench "${preflight[@]}" --nodes "$nodes" &&
        run "$nodes" python -m bench "${sweep[@]}" --json "$results/nodes-$nodes.jsonl" || status=$?
done
exit "$status"
