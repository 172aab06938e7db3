"""A producer of transactions without a JVM."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable

from rmq_ha.base.model.flags import TRANSACTION_COMMIT
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.base.wire.frame import decode_frame, encode_frame
from rmq_ha.client.lookup.requests import send_request
from tests.interop.rig import Server
from tests.interop.wire import STORED, Wire


class WireProducer(Wire):
    """Leaves transactions open, and answers questions about them."""

    def __init__(self, server: Server, group: str) -> None:
        super().__init__(server.address)
        self._group = group
        body = {"clientID": f"{group}@wire", "producerDataSet": [{"groupName": group}]}
        self.call(RequestCode.HEART_BEAT, fastjson.encode(body))

    def leave_open(self, topic: str, *serials: str, **more: str) -> list[dict[str, str]]:
        """
        Send half messages with these unique keys.

        :param more: other properties of all.
        :returns: what END_TRANSACTION has to say of each.
        """
        places = []
        for serial in serials:
            properties = {"TRAN_MSG": "true", "PGROUP": self._group, "UNIQ_KEY": serial, **more}
            text = encode_properties(properties)
            now = int(time.time() * 1000)
            request = send_request(self._group, topic, 0, serial.encode(), text, now)
            (answer,) = self.exchange([request])
            assert answer.code in STORED, answer
            ext = answer.ext or {}
            offset = str(int(ext["msgId"][-16:], 16))
            places.append({"tranStateTableOffset": ext["queueOffset"], "commitLogOffset": offset})
        return places

    def commit(self, place: dict[str, str]) -> None:
        """END_TRANSACTION, one-way, as the Java client's."""
        ext = {**place, "producerGroup": self._group, "commitOrRollback": str(TRANSACTION_COMMIT)}
        request = RemotingCommand(RequestCode.END_TRANSACTION, ext, flag=FLAG_ONEWAY)
        self._socket.sendall(encode_frame(request))

    def commit_what_is_asked(self, done: Callable[[], bool]) -> Counter[str]:
        """Answer questions until something is true; how many there were about each."""
        found: Counter[str] = Counter()
        deadline = time.monotonic() + 40
        self._socket.settimeout(0.3)
        while not done():
            assert time.monotonic() < deadline, f"not done after {found}"
            with contextlib.suppress(TimeoutError):
                data = self._socket.recv(1 << 18)
                assert data, "the broker closed the connection"
                for frame in self._reader.receive_data(data):
                    question = decode_frame(*frame)
                    if question.code == RequestCode.CHECK_TRANSACTION_STATE:
                        ext = question.ext or {}
                        found[ext["msgId"]] += 1
                        self.commit({**ext, "fromTransactionCheck": "true"})
        self._socket.settimeout(30)
        return found
