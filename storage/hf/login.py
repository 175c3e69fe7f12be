"""Signs in to Hugging Face by the device flow of huggingface_hub, and asks for the S3 credentials of a token.

The library keeps the token of the device flow in its own file. The S3 gateway does not take it: its credentials are
made on the page of the access tokens, and no documented request makes them.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from importlib.util import find_spec

from storage.contract import BadAddress, Denied, Unavailable
from storage.hf.hub import endpoint
from storage.logins import Asked, BadAnswer, Desk, answered
from storage.packages import install

KEY, SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
_BEGIN = "HFAK"


def log_in(desk: Desk, asked: Asked) -> dict[str, str]:
    """The variables that open a bucket. Raises BadAddress, BadAnswer, Denied, Unavailable; no error holds a secret.

    Unless `asked.keys_only`, also signs in for `hf://new`, which makes a bucket.
    """
    if not asked.keys_only:
        _by_device(desk)
    desk.tell(
        f"Open {endpoint()}/settings/tokens. Make a token that may write in this one bucket (kind: fine-grained), and "
        "choose Generate S3 credentials in its menu."
    )
    key = answered(desk, f"Access key ID ({_BEGIN}…): ")
    if not key.startswith(_BEGIN):
        raise BadAnswer(f"an access key ID of Hugging Face begins with {_BEGIN}. The token itself (hf_…) is not one.")
    return {KEY: key, SECRET: answered(desk, "Secret access key (not shown): ", secret=True)}


def _by_device(desk: Desk) -> None:
    """The library's own sign-in: prints an address and a code, and waits until the person has allowed it."""
    if find_spec("huggingface_hub") is None:
        raise BadAddress(f"signing in to Hugging Face needs the extra hf. Install it: `{install('hf')}`.")
    import huggingface_hub
    from huggingface_hub import errors

    if not hasattr(errors, "DeviceCodeError"):
        raise BadAddress(f"this huggingface_hub cannot sign in by a code. Upgrade it: `{install('hf')} --upgrade`.")
    try:
        with redirect_stdout(sys.stderr):
            huggingface_hub.login(skip_if_logged_in=False)
    except errors.DeviceCodeError as error:
        if error.error_code is None:
            raise Unavailable(f"{endpoint()} does not answer. Run the same command again.") from None
        code = getattr(error.error_code, "value", error.error_code)
        raise Denied(f"Hugging Face refused the sign-in ({code}). Run the same command again.") from None
    except (errors.HTTPError, OSError) as error:
        raise Unavailable(f"{endpoint()} does not answer ({type(error).__name__}). Run it again.") from None
    except ValueError:
        raise Denied("Hugging Face does not accept the token. Run the same command again.") from None
    desk.tell("Signed in. huggingface_hub keeps this token in its own file; `hf auth logout` removes it.")
