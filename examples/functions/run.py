"""Invokes producer and consumer as Lambda would, on the local application."""

from __future__ import annotations

import json
from typing import Any

import boto3
from fairbox import Outbox, Subscription, Topic

from examples.functions import consumer, producer

DEPOSITS = (5, 7)

dynamodb, sqs = boto3.client("dynamodb"), boto3.client("sqs")
outbox = Outbox.from_env()

for table in {"Accounts", "Inbox"} - set(dynamodb.list_tables()["TableNames"]):
    dynamodb.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
queue = sqs.create_queue(QueueName="balances")["QueueUrl"]
dynamodb.delete_item(TableName="Accounts", Key={"id": {"S": "ann"}})  # of a run before
outbox.create_topic(Topic("deposits"))
outbox.add_subscription(Subscription("deposits", "balances", f"sqs:{queue}"))

for number, amount in enumerate(DEPOSITS):
    body = json.dumps({"id": number, "account": "ann", "amount": amount})
    producer.handler({"body": body}, None)

done: set[str] = set()
while len(done) < len(DEPOSITS):
    received = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20, MaxNumberOfMessages=10)
    for message in received.get("Messages", ()):
        record: dict[str, Any] = {
            "eventSource": "aws:sqs",
            "messageId": message["MessageId"],
            "body": message["Body"],
        }
        for _ in range(2):
            assert consumer.handler({"Records": [record]}, None) == {"batchItemFailures": []}
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        done.add(json.loads(message["Body"])["id"])

account = dynamodb.get_item(TableName="Accounts", Key={"id": {"S": "ann"}})["Item"]
print(f"ann has {account['balance']['N']}")
