"""Lists the devices that the tracker knows, busy ones included, without opening a session."""

import logging
import os
from collections import deque
from dataclasses import dataclass
from typing import Final

from mallorn.core.errors import MallornError, NoDevice
from mallorn.core.host_id import host_id, share_locks
from mallorn.core.settings import Settings
from mallorn.core.storable_json import quote_untrusted
from mallorn.core.targets import Target, parse_target
from mallorn.workers.device.device_class import DeviceClass, Endpoint, endpoint_of
from mallorn.workers.device.tracker_client import TrackerClient, tracker_key
from mallorn.workers.host.host_lock import lock_identity

log = logging.getLogger(__name__)
REMEMBERED: Final = 64  # most recent warnings about ignored devices, each of which is logged once


@dataclass(frozen=True, slots=True)
class TrackedDevice:
    key: str
    target: str  # canonical text
    busy: bool
    endpoint: Endpoint


class Fleet:
    """The devices of a tracker. Methods raise Unavailable if it does not answer."""

    def __init__(self, settings: Settings) -> None:
        self._tracker, self._key = settings.tracker_address, settings.fleet_key
        self._left_out: deque[str] = deque(maxlen=REMEMBERED)

    def devices(self, target: Target | None = None) -> list[TrackedDevice]:
        """Return the devices of a target (or of all) that `mallorn device` started, sorted
        by name. Devices with an implausible description are left out, with a warning."""
        with TrackerClient(self._tracker, key=self._key) as client:
            servers = client.summary()["server_info"]
        devices: list[TrackedDevice] = []
        for server in servers:
            if "mallorn" not in server:
                continue
            try:
                identity, server_key = server["mallorn"], str(server["key"]).removeprefix("server:")
                endpoint, device_target = endpoint_of(identity), parse_target(str(identity["target"]))
                is_busy = bool(server["busy"])
                devices.append(TrackedDevice(server_key, device_target.text, is_busy, endpoint))
            except (MallornError, KeyError, TypeError, ValueError) as error:
                address, reason = quote_untrusted(server.get("addr")), " ".join(str(error).split())
                words = f"the device at {address} is left out: {reason}"
                if words not in self._left_out:
                    self._left_out.append(words)
                    log.warning(words)
        key = tracker_key(target) if target is not None else None
        return sorted((d for d in devices if key in (None, d.key)), key=lambda device: device.endpoint.name)

    def find_device(self, target: Target) -> Endpoint:
        """Return a device of the target, preferably a free one. Raises NoDevice."""
        devices = sorted(self.devices(target), key=lambda device: device.busy)
        if not devices:
            raise NoDevice
        return devices[0].endpoint


def shares_locks(endpoint: Endpoint) -> bool:
    """Return whether a device's core locks bind this process, too: true if the device is on
    another host, or on this one and uses the same lock files."""
    own_locks = lock_identity() or "unreadable"  # such a process locks nothing
    return share_locks(endpoint.host_id, endpoint.info.lock_file, host_id(), own_locks)


def runs_here(endpoint: Endpoint) -> bool:
    """Return whether processes of this host can run a device's programs. A device in an
    emulated container is on this host, and has another architecture."""
    is_native = endpoint.info.machine in ("", os.uname().machine)
    return is_native and endpoint.host_id == host_id()


def of_class(devices: list[TrackedDevice], like: DeviceClass | None) -> list[TrackedDevice]:
    """Return the devices of class `like`; all devices if it is None."""
    if like is None:
        return devices
    return [device for device in devices if device.endpoint.device_class == like]
