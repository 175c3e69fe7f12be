#!/usr/bin/env bash
# Two accounts take turns on the published Sudoku model with real puzzles on a CPU: 50 steps at batch 8, then 20 test rows.
#   bash benchmarks/real_sudoku.sh TRAIN.csv TEST.csv
set -euo pipefail
train=$(realpath "$1") test=$(realpath "$2")
cd "$(dirname "$0")/.."
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export RELAY_STORE="file://$work/store" RELAY_EPHEMERAL=1
relay() { "${PYTHON:-python3}" rotate_accounts.py "$@"; }
settings=(task=sudoku batch_size=8 "data.train=$train" "data.test=$test")

relay prepare "${settings[@]}"
time relay run --account account_1 --run real --target-steps 25 --checkpoint-every 25 "${settings[@]}"
time relay run --account account_2 --run real --target-steps 50 --checkpoint-every 25 "${settings[@]}"
relay report --run real
time relay evaluate --run real --rows 20 "${settings[@]}"
relay verify --run real
relay status --run real --json
