#!/usr/bin/env bash
# One session of the relay: set this machine up, prepare the data, train, report, print the next step.
# Every variable is optional: ACCOUNT_ID, RUN_NAME, RELAY_STORE, RELAY_BUDGET_MINUTES, ... (config_multi_account.yaml);
# PYTHON names the interpreter; pip's own variables (PIP_INDEX_URL, ...) decide where packages come from.
# `setup` as the only word ends after the run's data is prepared; other words are for the session, e.g. --replace.
set -euo pipefail; trap '' PIPE; cd "$(dirname "${BASH_SOURCE[0]}")"   # whoever reads this may go away
say() { printf '\n== %s\n' "$*" >&2 || true; }; stop() { say "$*"; exit 78; }

# 1. An interpreter: the active one (Colab, Kaggle, venv, conda), else our own in .venv.
python=${PYTHON:-python3}
active=${VIRTUAL_ENV:-}${CONDA_PREFIX:-}${COLAB_RELEASE_TAG:-}${KAGGLE_KERNEL_RUN_TYPE:-}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || stop "Python 3.11 or newer is needed: set PYTHON=..."
if [[ -z $active && ! -e /var/colab/hostname ]]; then
  if [[ ! -x .venv/bin/pip ]]; then
    package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
    "$python" -c 'import ensurepip, venv' 2>/dev/null || stop "Please install $package first: sudo apt install $package"
    "$python" -m venv .venv
  fi
  python=.venv/bin/python
fi

# 2. Packages, if one is missing. A torch or numpy that is here already is pinned, never replaced.
needed='import einops, filelock, numpy, pydantic, rich, safetensors, tenacity, torch, typer, yaml' extra=train
case ${RELAY_STORE:-} in s3:*) needed+=', boto3' extra+=,s3 ;; dropbox:*) needed+=', dropbox' extra+=,dropbox ;;
  drive:*) needed+=', googleapiclient, google_auth_httplib2' extra+=,drive ;;
  hf:*) needed+=', boto3, huggingface_hub' extra+=,hf ;; esac
case " task=${RELAY_TASK:-} $* " in *' task=lm '*|*' task=lm_fast '*|*' task=lm_extreme '*)
  needed+=', huggingface_hub, pyarrow, tokenizers' extra+=,lm ;; esac
if ! "$python" -c "$needed" 2>/dev/null; then
  say "Installing packages once. This takes some minutes, most of them for PyTorch (several GB with CUDA):"
  here=$("$python" -m pip list --format=freeze) || stop "pip cannot list packages: it could replace torch. Repair pip."
  pins=$(mktemp); grep -E '^(torch|numpy)==' <<<"$here" >"$pins" || true
  if ! grep -q '^torch==' "$pins"; then
    "$python" -c 'import sys, importlib.util as u; sys.exit(u.find_spec("torch") is not None)' ||
      stop "pip does not know the installed torch and would replace it. Install the other packages yourself: README."
    cat constraints.txt >>"$pins"   # one version for all: exact from machine to machine
  fi
  "$python" -m pip install --disable-pip-version-check -c "$pins" -e ".[$extra]"
fi
relay() { "$python" rotate_accounts.py "$@"; }
shown=$(command -v python >/dev/null && echo python || echo python3)   # what the next person's shell knows
[[ ${1:-} != setup ]] || { relay prepare; exit; }

# 3. Without a store of your own the run lives in ./relay_store.
settings=$(relay config show)
if ! grep -q '^storage\..*url = [^(]' <<<"$settings"; then
  say "No store is configured: the run is kept in ./relay_store and is lost if this machine is deleted."
  export RELAY_EPHEMERAL=1
fi

# 4. Data first (needs no GPU), then one session. A signal to this script is for the session, which commits and ends;
#    the session is a process group of its own, so that one Ctrl-C reaches it once.
given=() session='' early=''; for word in "$@"; do [[ $word != [a-z]*=* ]] || given+=("$word"); done
relay prepare ${given[@]+"${given[@]}"}   # settings decide the data too
forward() { if [[ $session ]]; then again=1; kill -s "$1" "$session" 2>/dev/null || true; else early=$1; fi; }
trap 'forward INT' INT; trap 'forward TERM' TERM HUP; trap 'forward USR1' USR1 USR2 XCPU
set -m; "$python" rotate_accounts.py run --wait 5 "$@" & session=$!; set +m
[[ -z $early ]] || forward "$early"; again=1
while [[ $again ]]; do again='' code=0; wait "$session" || code=$?; done   # a signal ends `wait`, not the session

# 5. The report, and what comes next.
relay report || true   # the session's own exit code is what counts
shown="$shown rotate_accounts.py" of=${RUN_NAME:+ --run $RUN_NAME}
case $code in
  0)  say "The last step is reached. To measure the accuracy: $shown evaluate$of" ;;
  75) say "Handed off. Next:"; relay next || true ;;
  73) say "Another session trains. Try later, or wait: $shown run$of${ACCOUNT_ID:+ --account $ACCOUNT_ID} --wait 30" ;;
  74) say "The newest checkpoint is on this machine only. Do not delete it: $shown push$of" ;;
  76) say "Another session took over while this one was suspended. Committed steps are safe; run again later." ;;
  65 | 69 | 77 | 78) say "Not trained (exit $code, reason above). For advice: $shown doctor$of" ;;
  *)  say "Ended with exit $code. The durable step above is safe; the same command continues from it." ;;
esac
exit "$code"
