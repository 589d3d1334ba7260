"""Every command and its options; what a command does is in the module it names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from trunkline.model_store import DEFAULT_MODEL

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Trunkline: LLM serving that computes each shared prefix once. Start with: trunkline up",
)
model_app = typer.Typer(no_args_is_help=True, help="Get models and find where they lie.")
app.add_typer(model_app, name="model")

Model = Annotated[str, typer.Option(help="Short name, local path (.gguf or folder) or hub id.")]
RedisUrl = Annotated[str, typer.Option(help="redis://, rediss:// or unix:// URL of the cluster's Redis.")]
Router = Annotated[str, typer.Option(envvar="TRUNKLINE_ROUTER", help="host:port of the router.")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16, or auto: bfloat16 where the CPU computes in it.")]
MaxTokens = Annotated[int | None, typer.Option(help="Most tokens to generate. Default: 256.")]
Temperature = Annotated[float, typer.Option(help="0 is greedy; higher draws more freely.")]
Seed = Annotated[int | None, typer.Option(help="The same seed gives the same tokens, on any node.")]

DEFAULT_ROUTER = "127.0.0.1:50051"


@app.command()
def up(
    prefill: Annotated[int, typer.Option(min=1, help="Prefill nodes.")] = 2,
    decode: Annotated[int, typer.Option(min=1, help="Decode nodes.")] = 1,
    model: Model = DEFAULT_MODEL,
    redis_url: Annotated[str | None, typer.Option(help="Use this Redis instead of an embedded Valkey.")] = None,
    dtype: Dtype = "auto",
    port: Annotated[int, typer.Option(help="The router's port; 0 takes a free one.")] = 50051,
    threads: Annotated[int | None, typer.Option(help="Threads of each node. Default: the cores, shared.")] = None,
    num_blocks: Annotated[int | None, typer.Option(help="Blocks of each node's KV pool.")] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Keep logs here. Default: a temporary folder.")] = None,
) -> None:
    """Run a whole cluster on this machine until Ctrl-C: Valkey, router, prefill and decode nodes."""
    from trunkline.cli.up import run_up
    from trunkline.cluster import ClusterConfig

    options = () if num_blocks is None else ("--num-blocks", str(num_blocks))
    run_up(
        ClusterConfig(
            prefill=prefill,
            decode=decode,
            model=model,
            redis_url=redis_url,
            dtype=dtype,
            port=port,
            threads=threads,
            node_options=options,
            run_dir=run_dir,
        )
    )


@app.command()
def demo(model: Model = DEFAULT_MODEL, dtype: Dtype = "auto") -> None:
    """Start a cluster, run three conversations over one long system prompt, show what happened, stop."""
    from trunkline.cli.demo import run_demo

    run_demo(model, dtype)


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help='What to ask; "-" reads it from standard input.')],
    router: Router = DEFAULT_ROUTER,
    max_tokens: MaxTokens = None,
    temperature: Temperature = 0.0,
    seed: Seed = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Print the usage ledger to standard error.")] = False,
) -> None:
    """Ask once and stream the answer to standard output."""
    from trunkline.cli.talk import run_generate

    run_generate(router, prompt, max_tokens=max_tokens, temperature=temperature, seed=seed, raw=raw, stats=stats)


@app.command()
def chat(
    router: Router = DEFAULT_ROUTER,
    max_tokens: MaxTokens = None,
    temperature: Temperature = 0.0,
    system: Annotated[str | None, typer.Option(help="A system prompt.")] = None,
) -> None:
    """Talk with the model. /reset forgets, /stats shows the last ledger, Ctrl-C stops an answer, Ctrl-D leaves."""
    from trunkline.cli.talk import run_chat

    run_chat(router, max_tokens=max_tokens, temperature=temperature, system=system)


@app.command()
def status(
    router: Router = DEFAULT_ROUTER,
    verify: Annotated[bool, typer.Option("--verify", help="Also check every node's books.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Show every node: epoch, blocks used, cached and free, leases, hit rate. Exit status 1 if books disagree."""
    from trunkline.cli.status import run_status

    run_status(router, verify=verify, as_json=as_json)


@model_app.command("pull")
def model_pull(model: Annotated[str, typer.Argument(help="Short name or hub id.")] = DEFAULT_MODEL) -> None:
    """Download a model unless it is here already, and print where it lies."""
    from trunkline.cli.model import run_pull

    print(run_pull(model).path)


@model_app.command("path")
def model_path(model: Annotated[str, typer.Argument(help="Short name, path or hub id.")] = DEFAULT_MODEL) -> None:
    """Print where a model lies."""
    from trunkline.model_store import resolve

    print(resolve(model).path)


@app.command("router")
def router_process(
    redis_url: RedisUrl,
    model: Model = DEFAULT_MODEL,
    name: Annotated[str, typer.Option(help="In logs.")] = "router",
    listen: Annotated[str, typer.Option(help="host:port of gRPC; port 0 takes a free one.")] = DEFAULT_ROUTER,
    balance_factor: Annotated[float, typer.Option(help="Affinity yields above this times the mean queue.")] = 1.5,
    drain_grace_s: Annotated[float, typer.Option(help="SIGTERM waits this long for running requests.")] = 30.0,
) -> None:
    """Run one router process by hand."""
    from trunkline import log
    from trunkline.config import RouterConfig
    from trunkline.router.server import serve

    log.setup(name)
    config = RouterConfig(
        model=model,
        redis_url=redis_url,
        name=name,
        listen=listen,
        balance_factor=balance_factor,
        drain_grace_s=drain_grace_s,
    )
    asyncio.run(serve(config))


Name = Annotated[str, typer.Option(help="The node's name, unique in the cluster.")]
Listen = Annotated[str, typer.Option(help="host:port of gRPC; port 0 takes a free one.")]
BlockSize = Annotated[int, typer.Option(help="Tokens of a block.")]
NumBlocks = Annotated[int | None, typer.Option(help="Blocks of the KV pool. Default: from --pool-bytes.")]
PoolBytes = Annotated[int | None, typer.Option(help="Bytes of the KV pool. Default: from free memory.")]
Batched = Annotated[int, typer.Option(help="Tokens of one step: decodes first, then prompt chunks.")]
Running = Annotated[int, typer.Option(help="Requests computed at once.")]
ModelLen = Annotated[int | None, typer.Option(help="Longest prompt + answer. Default: the model's context.")]
Threads = Annotated[int | None, typer.Option(help="Threads of a step. Default: all cores.")]
LeaseTtl = Annotated[float, typer.Option(help="Seconds that a lease lives without renewal.")]
LeaseRenew = Annotated[float, typer.Option(help="Seconds between renewals.")]
PullTimeout = Annotated[float, typer.Option(help="Seconds after which a pull counts as failed.")]
DrainGrace = Annotated[float, typer.Option(help="SIGTERM waits this long for running requests.")]


@app.command("prefill")
def prefill_process(
    redis_url: RedisUrl,
    name: Name,
    model: Model = DEFAULT_MODEL,
    listen: Listen = "127.0.0.1:0",
    block_size: BlockSize = 16,
    num_blocks: NumBlocks = None,
    pool_bytes: PoolBytes = None,
    max_batched_tokens: Batched = 512,
    max_running: Running = 64,
    max_model_len: ModelLen = None,
    dtype: Dtype = "auto",
    threads: Threads = None,
    lease_ttl_s: LeaseTtl = 30.0,
    lease_renew_s: LeaseRenew = 5.0,
    pull_timeout_s: PullTimeout = 10.0,
    drain_grace_s: DrainGrace = 30.0,
) -> None:
    """Run one prefill node by hand."""
    _run_node("prefill", locals())


@app.command("decode")
def decode_process(
    redis_url: RedisUrl,
    name: Name,
    model: Model = DEFAULT_MODEL,
    listen: Listen = "127.0.0.1:0",
    block_size: BlockSize = 16,
    num_blocks: NumBlocks = None,
    pool_bytes: PoolBytes = None,
    max_batched_tokens: Batched = 512,
    max_running: Running = 64,
    max_model_len: ModelLen = None,
    dtype: Dtype = "auto",
    threads: Threads = None,
    lease_ttl_s: LeaseTtl = 30.0,
    lease_renew_s: LeaseRenew = 5.0,
    pull_timeout_s: PullTimeout = 10.0,
    drain_grace_s: DrainGrace = 30.0,
    role: Annotated[str, typer.Option(help="decode, or both: computes prompts itself when alone.")] = "decode",
) -> None:
    """Run one decode node by hand."""
    options = locals()
    _run_node(options.pop("role"), options)


def _run_node(role: str, options: dict[str, object]) -> None:
    """Options have the names of EngineConfig's and NodeConfig's fields."""
    from dataclasses import fields

    from trunkline import log
    from trunkline.config import EngineConfig, NodeConfig

    log.setup(str(options["name"]))
    engine_names = {f.name for f in fields(EngineConfig)}
    engine = EngineConfig(**{k: v for k, v in options.items() if k in engine_names})  # type: ignore[arg-type]
    node = {k: v for k, v in options.items() if k not in engine_names}
    config = NodeConfig(role=role, engine=engine, **node)  # type: ignore[arg-type]
    if role == "prefill":
        from trunkline.prefill_node.server import serve
    else:
        from trunkline.decode_node.server import serve
    asyncio.run(serve(config))
