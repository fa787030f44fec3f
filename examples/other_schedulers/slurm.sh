#!/bin/bash
#SBATCH --job-name=digits
#SBATCH --array=0-3
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --time=00:30:00
#SBATCH --signal=B:TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append

# One job per learning rate, all of them trials of one experiment. A minute before its time is up a job is sent TERM:
# it saves a checkpoint, leaves, and is queued again; it goes on under the same ids.
# sbatch examples/other_schedulers/slurm.sh --epochs 20

export DET_JOB_SECRET=$(openssl rand -hex 32) # with which ranks on several nodes sign what they tell each other
port=$((20000 + SLURM_JOB_ID % 10000))        # other jobs may run on the same node
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 2 --shutdown-timeout 50 \
    --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:$port" \
    "${SLURM_SUBMIT_DIR:-.}/examples/other_schedulers/train.py" "$@" &
step=$!

stopped=no
trap 'stopped=yes; kill -TERM "$step"' TERM
while kill -0 "$step" 2>/dev/null; do
    wait "$step" # returns early when a signal comes
    code=$?
done

if [ "$stopped" = yes ]; then
    exec scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
