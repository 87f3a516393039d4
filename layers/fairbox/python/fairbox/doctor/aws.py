"""Questions to AWS: only calls that describe; what is denied is remembered, the rest goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DENIED: Final = frozenset(
    {
        "AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation",
        "AuthorizationErrorException",
    }
)  # fmt: skip
_MISSING: Final = frozenset(
    {
        "ResourceNotFoundException", "TableNotFoundException", "NotFound", "NotFoundException",
        "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "ResourceNotFound",
    }
)  # fmt: skip
_BUSY: Final = frozenset({"Throttling", "ThrottlingException", "TooManyRequestsException"})
_PAGES: Final = 20
_TRIES: Final = 3
READS: Final[dict[str, tuple[str, ...]]] = {
    "cloudformation": ("describe_stacks", "list_stack_resources"),
    "cloudwatch": ("describe_alarms", "get_metric_data"),
    "dynamodb": ("describe_table", "describe_continuous_backups", "describe_time_to_live"),
    "events": ("describe_event_bus", "describe_rule", "list_targets_by_rule"),
    "kinesis": ("describe_stream_summary",),
    "lambda": (
        "get_event_source_mapping",
        "get_function_concurrency",
        "get_function_configuration",
    ),
    "sns": ("get_topic_attributes",),
    "sqs": ("get_queue_attributes", "get_queue_url"),
}
"""Every call that is made, by boto3's service: each describes, none changes anything."""


class NotAnswered(Exception):
    """A question was not answered; `advice` says what to do."""

    advice = ""


class Missing(NotAnswered):
    """The resource asked about does not exist."""


class Denied(NotAnswered):
    """The caller may not ask; `.action` is what is missing."""

    def __init__(self, action: str) -> None:
        super().__init__(f"denied: the caller lacks {action}")
        self.action = action
        self.advice = f"Allow {action}: policy Reader of the deployment's Access stack does."


class Aws:
    """Asks; what was throttled or did not answer is asked again, twice.

    Args:
        client: gives boto3's clients by service and region; None: the environment's.
        sleep: waits for so many seconds.

    Attributes:
        denied: actions that the caller lacks, in order.
        calls: how many calls were made.
    """

    def __init__(
        self, client: Callable[[str, str | None], Any], sleep: Callable[[float], None]
    ) -> None:
        self._client = client
        self._sleep = sleep
        self.denied: dict[str, None] = {}
        self.calls = 0

    def ask(
        self, service: str, operation: str, /, *, region: str | None = None, **arguments: Any
    ) -> dict[str, Any]:
        """Return the answer of a region; without one that of the environment's.

        Raises:
            Missing: what was asked about is not there.
            Denied: the caller may not ask.
            NotAnswered: it answered otherwise, or not at all.
        """
        # no examination changes what it examines, and the policy Reader allows these calls alone
        if operation not in READS[service]:
            raise ValueError(f"{operation} is no call that only reads")

        for attempt in range(1, _TRIES + 1):
            self.calls += 1
            try:
                client = self._client(service, region)
                answer: dict[str, Any] = getattr(client, operation)(**arguments)
            except ClientError as error:
                if error.response["Error"].get("Code") not in _BUSY or attempt == _TRIES:
                    raise self._translated(service, operation, error) from error
            except BotoCoreError as error:
                if attempt == _TRIES:
                    reason = f"{service} did not answer: {type(error).__name__}"
                    raise NotAnswered(reason) from error
            else:
                return answer
            # CloudFormation and Lambda allow few describing calls a second in an account
            self._sleep(0.5 * 2**attempt)
        raise AssertionError("the last try returns or raises")

    def pages(self, service: str, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Yield the pages of a list that goes on by `NextToken`, twenty at most."""
        # a bound: a service that repeats its token would be asked for ever
        for _ in range(_PAGES):
            answer = self.ask(service, operation, **arguments)
            yield answer
            if not answer.get("NextToken"):
                return
            arguments["NextToken"] = answer["NextToken"]

    def _translated(self, service: str, operation: str, error: ClientError) -> NotAnswered:
        fields = error.response["Error"]
        code, text = str(fields.get("Code", "")), str(fields.get("Message", ""))
        if code in _DENIED:
            action = f"{service}:{operation.title().replace('_', '')}"
            self.denied[action] = None
            return Denied(action)
        # CloudFormation answers a missing stack with ValidationError, and only the text says why
        if code in _MISSING or "does not exist" in text:
            return Missing("it is not there")
        return NotAnswered(f"{service} does not answer {operation} here: {code}")
