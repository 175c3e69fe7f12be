#!/usr/bin/env bash
# Trains one experiment of a study: scripts/run_experiment.sh EXPERIMENT [RUN_NAME]. RUN_NAME names the log, logs/RUN_NAME.log.
set -euo pipefail; cd "$(dirname "${BASH_SOURCE[0]}")/.."; mkdir -p logs
exec > >(exec tee -ai "logs/${2:-${1:?usage: scripts/run_experiment.sh EXPERIMENT [RUN_NAME]}}.log") 2>&1
exec "${PYTHON:-python}" rotate_accounts.py study run "${STUDY:-trm_scaling}" "$1"
