"""An order service: an order and its message are one transaction."""

from __future__ import annotations

import math
import sys
from typing import Annotated

import boto3
import uvicorn
from fairbox import Message, Outbox, Throttled, Topic, TopicFull, TransactionCancelled, Unavailable
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

Text = Annotated[str, Field(min_length=1, max_length=64)]
app = FastAPI()
dynamodb = boto3.client("dynamodb")
outbox = Outbox.from_env()


class Order(BaseModel):
    """An order as a client sends it."""

    id: Text
    customer: Text
    total: Annotated[int, Field(ge=0)]


@app.post("/orders", status_code=201)
def place(order: Order) -> dict[str, str]:
    """Store an order once, with the message that tells of it."""
    message = Message(
        topic="orders",
        type="com.example.order.placed",
        body=order.model_dump_json().encode(),
        content_type="application/json",
        partition_key=order.customer,
    )
    item = {
        "id": {"S": order.id},
        "customer": {"S": order.customer},
        "total": {"N": str(order.total)},
    }
    put = {
        "Put": {
            "TableName": "Orders",
            "Item": item,
            "ConditionExpression": "attribute_not_exists(id)",
        }
    }

    try:
        [ref] = outbox.transact([put], message)
    except TransactionCancelled as error:
        raise HTTPException(409, f"order {order.id} is there, or being placed") from error
    except (Throttled, TopicFull, Unavailable) as error:
        # the client may repeat it: an order that was written after all is there once, and is a 409
        after = {"Retry-After": str(math.ceil(error.retry_after or 1))}
        raise HTTPException(503, "try again", after) from error
    return {"order": order.id, "message": str(ref)}


def prepare() -> None:
    """Make topic and table, where they are missing."""
    outbox.create_topic(Topic("orders"))
    if "Orders" not in dynamodb.list_tables()["TableNames"]:
        dynamodb.create_table(
            TableName="Orders",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )


if __name__ == "__main__":
    prepare()
    uvicorn.run(app, port=int(sys.argv[1]))
