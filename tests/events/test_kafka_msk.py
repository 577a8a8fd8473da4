"""What kafka-python signs for AWS_MSK_IAM, against AWS' own figures. (No cluster of AWS was at hand.)"""

from __future__ import annotations

import json

import pytest

pytest.importorskip("kafka", reason="needs relume[kafka]")

from kafka.net.sasl.msk import AwsMskIamClient

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
BY_BOTOCORE = "a38b5689fc29ecee9960f0c19f8e590f458346d336f7893312a33be7f6b33f46"
"""X-Amz-Signature of ``GET https://HOST/?Action=kafka-cluster%3AConnect`` for 900 s, as botocore 1.44.8's
`SigV4QueryAuth` signs it with the same keys, token, region and time."""


def test_the_signing_key_is_the_one_of_aws_documentation() -> None:
    """Its example of how a key is derived: 15 February 2012, us-east-1, iam."""
    client = AwsMskIamClient("host", "AKIDEXAMPLE", SECRET, "us-east-1")
    client.datestamp, client.service = "20120215", "iam"
    assert client._signing_key.hex() == "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d"


def test_the_message_has_the_signature_that_botocore_makes() -> None:
    """With a session's token, whose characters must be escaped."""
    host = "b-1.example.kafka.us-east-1.amazonaws.com"
    client = AwsMskIamClient(host, "AKIDEXAMPLE", SECRET, "us-east-1", token="session/token+=")
    client.datestamp, client.timestamp = "20150830", "20150830T123600Z"
    message = json.loads(client.first_message())
    assert message["x-amz-signature"] == BY_BOTOCORE
    assert (message["action"], message["host"], message["x-amz-expires"]) == ("kafka-cluster:Connect", host, "900")
