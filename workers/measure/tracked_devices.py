"""Lists the devices that the tracker knows, busy ones included, without opening a session."""

import logging
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from mallorn.core.errors import MallornError, NoDevice
from mallorn.core.host_id import host_id, share_locks
from mallorn.core.settings import Settings
from mallorn.core.storable_json import told
from mallorn.core.targets import Target, parse_target
from workers.device.device_class import DeviceClass, Endpoint, endpoint_of
from workers.device.tracker_client import TrackerClient, device_key
from workers.host.core_lock import lock_identity

log = logging.getLogger(__name__)
REMEMBERED: Final = 64  # most recent warnings about ignored devices, each of which is logged once


@dataclass(frozen=True, slots=True)
class TrackedDevice:
    key: str
    target: str  # canonical text
    busy: bool
    endpoint: Endpoint


class Fleet:
    """The devices of one tracker. Methods raise Unavailable if the tracker does not answer."""

    def __init__(self, settings: Settings) -> None:
        self._tracker, self._key = settings.tracker_address, settings.fleet_key
        self._left_out: deque[str] = deque(maxlen=REMEMBERED)

    def devices(self, target: Target | None = None) -> list[TrackedDevice]:
        """Return a target's devices, or all, by name; only those started by `mallorn device`."""
        with TrackerClient(self._tracker, key=self._key) as client:
            servers = client.summary()["server_info"]
        described = (self._device(server) for server in servers if "mallorn" in server)
        devices = [device for device in described if device is not None]
        key = device_key(target) if target is not None else None
        return sorted((d for d in devices if key in (None, d.key)), key=lambda device: device.endpoint.name)

    def describe(self, target: Target) -> Endpoint:
        """Return a device of the target, a free one if there is any. Raises NoDevice."""
        devices = sorted(self.devices(target), key=lambda device: device.busy)
        if not devices:
            raise NoDevice
        return devices[0].endpoint

    def _device(self, server: dict[str, Any]) -> TrackedDevice | None:
        """Return the device, or None, with a warning, if its description is not plausible."""
        try:
            identity, key = server["mallorn"], str(server["key"]).removeprefix("server:")
            endpoint, target = endpoint_of(identity), parse_target(str(identity["target"]))
            return TrackedDevice(key, target.text, bool(server["busy"]), endpoint)
        except (MallornError, KeyError, TypeError, ValueError) as error:
            words = f"the device at {told(server.get('addr'))} is left out: {' '.join(str(error).split())}"
            if words not in self._left_out:
                self._left_out.append(words)
                log.warning(words)
        return None


def shares_locks(endpoint: Endpoint) -> bool:
    """Return whether this process waits while the device times, or is on another host."""
    return share_locks(endpoint.host_id, endpoint.info.locks, host_id(), lock_identity())


def of_class(devices: list[TrackedDevice], like: DeviceClass | None) -> list[TrackedDevice]:
    """Return the devices of class `like`; all devices if it is None."""
    return devices if like is None else [each for each in devices if each.endpoint.device_class == like]
