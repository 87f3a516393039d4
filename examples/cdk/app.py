"""A shop of two stacks: its own, with orders and a queue for billing, and Fairbox's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import App, CfnOutput, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from fairbox_cdk import Fairbox

if TYPE_CHECKING:
    from constructs import Construct

HERE = Path(__file__).parent


class Shop(Stack):
    """A function that places orders, their table, and the queue that billing reads."""

    def __init__(self, scope: Construct, id_: str, *, outbox: Fairbox) -> None:
        super().__init__(scope, id_)
        key = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        orders = dynamodb.TableV2(self, "Orders", partition_key=key)
        place_order = lambda_.Function(
            self,
            "PlaceOrder",
            code=lambda_.Code.from_asset(str(HERE / "orders")),
            handler="place_order.handler",
            runtime=lambda_.Runtime.PYTHON_3_13,
            timeout=Duration.seconds(10),
            environment={"ORDERS_TABLE": orders.table_name},
        )
        orders.grant_write_data(place_order)
        outbox.add_library(place_order)
        outbox.grant_publish(place_order)

        billing = sqs.Queue(self, "Billing", encryption=sqs.QueueEncryption.KMS)
        outbox.add_destination(billing)
        CfnOutput(self, "Destination", value=f"sqs:{billing.queue_url}")


def build(app: App) -> App:
    """Add both to an application."""
    outbox = Fairbox(
        app,
        "Outbox",
        settings={"name": "ShopOutbox", "alarm_email": "on-call@example.com", "pipeline": False},
    )
    Shop(app, "Shop", outbox=outbox)
    return app


if __name__ == "__main__":
    build(App()).synth()
