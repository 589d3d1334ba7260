"""A process that holds KV and does nothing else, for tests and benchmarks of transports.

Run it with python -m trunkline.testing.kv_peer BLOCKS BLOCK_BYTES.

Prints one JSON line with its peer information, then obeys lines on stdin: "serve on|off", "fill BLOCK BYTE",
"quit". Answers each with one JSON line. Notifications that arrive are printed as {"notified": ...} lines.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid

import torch

from trunkline.transfer.nixl_transport import NixlTransport


async def main(blocks: int, block_bytes: int) -> None:
    memory = torch.arange(blocks, dtype=torch.uint8).repeat_interleave(block_bytes)
    epoch = uuid.uuid4().hex
    transport = NixlTransport(epoch, memory, block_bytes, lambda m: say({"notified": m.decode(errors="replace")}))
    say(
        {
            "epoch": epoch,
            "num_blocks": blocks,
            "block_bytes": block_bytes,
            "base_address": transport.base_address,
            "agent_metadata": transport.agent_metadata.hex(),
        }
    )
    while line := (await asyncio.to_thread(sys.stdin.readline)).split():
        match line:
            case ["serve", state]:
                transport.set_serving(state == "on")
            case ["fill", block, value]:
                memory[int(block) * block_bytes : (int(block) + 1) * block_bytes] = int(value)
            case ["quit"]:
                break
        say({"done": line})
    await transport.close()


def say(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
