#!/usr/bin/env bash
# Trains a sweep of a study: scripts/run_sweep.sh SWEEP. Its lines are also in logs/SWEEP.log.
set -euo pipefail; cd "$(dirname "${BASH_SOURCE[0]}")/.."; mkdir -p logs
exec > >(exec tee -ai "logs/${1:?usage: scripts/run_sweep.sh SWEEP}.log") 2>&1
exec "${PYTHON:-python}" rotate_accounts.py study run "${STUDY:-trm_scaling}" "$1"
