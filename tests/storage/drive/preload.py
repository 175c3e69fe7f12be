"""What the server that racing processes are forked from imports once."""

import google.oauth2.credentials  # noqa: F401
import googleapiclient.discovery  # noqa: F401
import httplib2  # noqa: F401

import tests.storage.drive.processes  # noqa: F401
