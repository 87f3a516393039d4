"""The local application: engines, resources, functions, routes and triggers, as one."""

from __future__ import annotations

import json
import random
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from local.cloudformation.assembly import Assembly
from local.cloudformation.identities import PARAMETER, Identities
from local.cloudformation.resources import (
    INVOKE_CONFIG,
    TRIGGERS,
    create_services,
    create_tables,
    refuse_unknown,
)
from local.cloudformation.template import Template
from local.engines.endpoints import Endpoints
from local.engines.firehose import Firehose, firehose_streams
from local.engines.servers import DynamoDbLocal, GivenEngine, Services, start_dynamodb
from local.functions.logs import FunctionLogs
from local.functions.pool import LocalInvoker, PoolSettings
from local.functions.specs import function_specs
from local.gateway.apis import find_apis
from local.gateway.http_api import Gateway, at_one_address, read_cors, read_routes
from local.gateway.lambda_api import LambdaApi
from local.gateway.throttling import read_throttle
from local.gateway.web_server import WebServer
from local.gateway.websocket_api import SERVER_SETTINGS, WebSocketGateway, read_websocket_api
from local.triggers.attach import Trigger, attach
from local.webhooks import keep_keys
from local.workspace import LOOPBACK, LocalError, Ports, Workspace, choose_port

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from local.functions.invoker import Invoker


class Attach(Protocol):
    """A function that makes the triggers of a template, such as `local.triggers.attach`."""

    def __call__(
        self,
        resources: Mapping[str, tuple[str, dict[str, Any]]],
        invoker: Invoker,
        clients: Mapping[str, Any],
        *,
        rng: random.Random,
        clock: Callable[[], float],
        function_names: Collection[str],
    ) -> Sequence[Trigger]:
        """Return the triggers, not started."""


@dataclass(kw_only=True)
class Options:
    """Options of an application.

    `durable` is a folder for the tables, or True to keep them below the workspace; False keeps
    them in memory. `dynamodb_endpoint` is the address of an engine that is already running.
    `proxy` takes the engine's endpoint and returns the one for the functions, so that faults can
    be injected. `attach` makes the triggers, by default those of `local.triggers`. `webhook_keys`
    are those of `local.webhooks`, for an assembly with its settings.
    """

    ports: Ports = field(default_factory=Ports.free)
    durable: Path | bool = False
    dynamodb_endpoint: str | None = None
    pool: PoolSettings = field(default_factory=PoolSettings)
    workspace: Workspace = field(default_factory=Workspace)
    attach: Attach = attach
    proxy: Callable[[str], str] | None = None
    rng: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - no secret
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    webhook_keys: str = ""

    @property
    def folder(self) -> Path | None:
        """Folder of durable tables."""
        if isinstance(self.durable, bool):
            return self.workspace.root / "dynamodb" if self.durable else None
        return self.durable


class LocalApplication:
    """Runs a cloud assembly while the `with` block lasts.

    Attributes after the start: `api_url`; `feeds_url`, None without a WebSocket API; `env` (what
    a shell needs, `FAIRBOX_*` included); `clients` (boto3 by name); `invoker`; `template`;
    `dynamodb` (the engine, to kill and restart); `triggers`; `firehose`.
    """

    api_url: str
    feeds_url: str | None = None
    env: dict[str, str]
    clients: Mapping[str, Any]
    invoker: LocalInvoker
    template: Template
    endpoints: Endpoints
    dynamodb: DynamoDbLocal | GivenEngine
    firehose: Firehose
    triggers: Sequence[Trigger]

    def __init__(self, assembly: Path, options: Options | None = None, **changes: Any) -> None:
        """`changes` are single options, as in `LocalApplication(folder, durable=path)`."""
        self._assembly = Assembly.load(assembly)
        self._options = replace(options or Options(), **changes)
        self._stack = ExitStack()
        self.services: Services

    def __enter__(self) -> Self:
        """Start everything; stop it again if a part fails to start."""
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop triggers and routes, flush Firehose, stop functions and engines."""
        self._stack.close()

    def _start(self, stack: ExitStack) -> None:
        options = self._options
        api_port = choose_port(options.ports.api, "api")
        feeds_port = choose_port(options.ports.feeds, "feeds")
        firehose_port = choose_port(0, "firehose")
        functions_port = choose_port(0, "functions")
        services_port = choose_port(options.ports.services, "services")
        self.api_url = f"http://{LOOPBACK}:{api_port}"
        self.template = Template(
            assembly=self._assembly,
            identities=Identities(
                services_endpoint=f"http://{LOOPBACK}:{services_port}",
                api_endpoint=self.api_url,
                feeds_endpoint=f"ws://{LOOPBACK}:{feeds_port}",
            ),
        )
        refuse_unknown(self.template)
        self._start_engines(stack, services_port)
        self.endpoints = Endpoints(
            dynamodb=self.dynamodb.endpoint,
            services=self.services.endpoint,
            firehose=f"http://{LOOPBACK}:{firehose_port}",
            functions=f"http://{LOOPBACK}:{functions_port}",
        )
        self.clients = self.endpoints.clients()
        create_tables(self.template, self.clients["dynamodb"])
        create_services(self.template, self.clients)
        keep_keys(options.webhook_keys, self.clients["secretsmanager"])
        self._start_firehose(stack, firehose_port)
        self._start_functions(stack, functions_port)
        self._start_api(stack, api_port)
        self._start_feeds(stack, feeds_port)
        self._start_triggers(stack)

    def _start_engines(self, stack: ExitStack, services_port: int) -> None:
        """Start both in parallel; stop the one that runs if the other fails."""
        options = self._options
        self.services = Services(port=services_port, workspace=options.workspace)
        stack.callback(self.services.stop)
        with ThreadPoolExecutor(1) as pool:
            services = pool.submit(self.services.start)
            self.dynamodb = start_dynamodb(
                port=options.ports.dynamodb,
                durable=options.folder,
                workspace=options.workspace,
                given=options.dynamodb_endpoint,
            )
            stack.callback(self.dynamodb.stop)
            services.result()

    def _start_firehose(self, stack: ExitStack, port: int) -> None:
        streams = firehose_streams(
            self.template,
            put_object=self.clients["s3"].put_object,
            now=lambda: datetime.now(UTC),
        )
        self.firehose = Firehose(streams, new_id=self._options.new_id)
        self.firehose.start()
        stack.callback(self.firehose.stop)
        self._serve(stack, WebServer(self.firehose.app, port=port, name="firehose-http"))

    def _start_functions(self, stack: ExitStack, port: int) -> None:
        options = self._options
        proxy = options.proxy or (lambda endpoint: endpoint)
        seen = replace(self.endpoints, dynamodb=proxy(self.endpoints.dynamodb))
        bytecode = {"PYTHONPYCACHEPREFIX": str(options.workspace.root.resolve() / "bytecode")}
        specs = function_specs(self.template, variables={**seen.variables(), **bytecode})
        logs = FunctionLogs(options.workspace.log, cloudwatch=self.clients["cloudwatch"])
        stack.callback(logs.close)
        self.invoker = LocalInvoker(specs, settings=options.pool, log=logs, new_id=options.new_id)
        stack.callback(self.invoker.close)
        api = LambdaApi(self.invoker, {spec.physical for spec in specs.values()})
        self._serve(stack, WebServer(api.app, port=port, name="functions-http"))
        self.env = self.endpoints.shell_variables()
        for spec in specs.values():
            self.env |= {k: v for k, v in spec.environment.items() if k.startswith("FAIRBOX_")}
        for name in self.template.of_type(PARAMETER):
            self.env |= json.loads(self.template.properties(name)["Value"])

    def _start_api(self, stack: ExitStack, port: int) -> None:
        gateways = [
            Gateway(
                routes=read_routes(self.template, api),
                invoker=self.invoker,
                api_id=self.template.ref(api),
                new_id=self._options.new_id,
                throttle=read_throttle(self.template, api),
                cors=read_cors(self.template, api),
            )
            for api in find_apis(self.template, "HTTP")
        ]
        for gateway in gateways:
            stack.callback(gateway.close)
        if gateways:
            self._serve(stack, WebServer(at_one_address(gateways), port=port, name="api"))

    def _start_feeds(self, stack: ExitStack, port: int) -> None:
        api = read_websocket_api(self.template)
        if api is None:
            return
        gateway = WebSocketGateway(api=api, invoker=self.invoker, new_id=self._options.new_id)
        stack.callback(gateway.close)
        self._serve(stack, WebServer(gateway.app, port=port, name="feeds", **SERVER_SETTINGS))
        self.feeds_url = f"ws://{LOOPBACK}:{port}/{api.stage}"

    def _serve(self, stack: ExitStack, server: WebServer) -> None:
        server.start()
        stack.callback(server.stop)

    def _start_triggers(self, stack: ExitStack) -> None:
        """Attach all before the first starts, so that a refusal comes before anything runs."""
        resources = {
            name: (resource.type, self.template.properties(name))
            for name, resource in self.template.of_type(*TRIGGERS, INVOKE_CONFIG).items()
        }
        specs = [self.invoker.pool(name).spec for name in self.invoker.functions()]
        names = {name for spec in specs for name in (spec.name, spec.physical, spec.arn)}
        try:
            self.triggers = self._options.attach(
                resources,
                self.invoker,
                self.clients,
                rng=self._options.rng,
                clock=time.time,
                function_names=names,
            )
        except ValueError as exc:
            raise LocalError(f"the local application does not know: {exc}") from exc
        stack.callback(self._stop_triggers)
        for trigger in self.triggers:
            trigger.start()

    def _stop_triggers(self) -> None:
        """Stop all in parallel, because each waits for its own function."""
        with ThreadPoolExecutor(max(1, len(self.triggers))) as pool:
            list(pool.map(lambda trigger: trigger.stop(), self.triggers))

    @property
    def resources(self) -> dict[str, str]:
        """The `Ref` of each resource (name, queue URL or topic ARN), by logical id."""
        return {name: self.template.ref(name) for name in self.template.resources}

    def pids(self) -> dict[str, int]:
        """Return the engines' process ids by name."""
        found = {"dynamodb": self.dynamodb.pid, "services": self.services.pid}
        return {name: pid for name, pid in found.items() if pid is not None}
