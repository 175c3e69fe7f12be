"""Loads the tasks of a folder with SkyPilot itself, in an environment of its own and without a network.

python -m venv sky && sky/bin/pip install skypilot==0.14.1
python rotate_accounts.py cloud recipe --all recipes
unshare -rn sky/bin/python docs/records/2026-11-30_cloud/skypilot_tasks.py recipes
"""

import sys
from pathlib import Path

import sky
import yaml
from sky.utils import common_utils, schemas

print("skypilot", sky.__version__)
files = sorted(Path(sys.argv[1]).glob("*.yaml"))
for path in files:
    config = yaml.safe_load(path.read_text())
    common_utils.validate_schema(config, schemas.get_task_schema(), f"{path.name}: ")
    common_utils.validate_schema(config["resources"], schemas.get_resources_schema(), f"{path.name}: ")
    secrets = [(name, "given by --secret") for name in config.get("secrets", {})]
    (found,) = sky.Task.from_yaml_config(config, secrets_overrides=secrets).resources
    print(path.name, found.accelerators, found.use_spot, found.job_recovery, found.autostop_config)
wrong = yaml.safe_load(files[0].read_text())
wrong["resources"]["use_spott"] = True
try:
    sky.Task.from_yaml_config(wrong)
except sky.exceptions.InvalidSkyPilotConfigError as error:
    print("a misspelt key:", error)
