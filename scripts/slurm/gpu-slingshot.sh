#!/bin/bash
# Written by: python -m bench slurm --nodes 1,2,4 --ppn 4 --cores 16 --gpus-per-node 4 --fabric slingshot --sbatch=--partition=gpu -- --device cuda --route auto staged
#SBATCH --job-name=allreduce
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --time=00:30:00
#SBATCH --signal=B:USR1@120
#SBATCH --output=%x-%j.out
#SBATCH --exclusive
#SBATCH --no-requeue
#SBATCH --partition=gpu

export OMP_NUM_THREADS=1
export NUMBA_NUM_THREADS=1
export SRUN_CPUS_PER_TASK=16
export OMPI_MCA_pml=cm
export OMPI_MCA_mtl=ofi
export PMIX_MCA_psec=native
export MPIR_CVAR_CH4_NETMOD=ofi
export FI_PROVIDER=cxi
export MPICH_GPU_SUPPORT_ENABLED=1
export I_MPI_OFFLOAD=1
counts=${*:-1 2 4}
results=results
preflight=(preflight --ppn 4 --cores 16 --gpus 4)
sweep=(sweep --device cuda --route auto staged)
launch() { exec srun --nodes=$1 --ntasks=$(($1 * 4)) --ntasks-per-node=4 --cpu-bind=cores --gpu-bind=none --kill-on-bad-exit=1 --wait=60 "${@:2}"; }

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
