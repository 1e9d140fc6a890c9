"""Named single-flight rights with fencing tokens."""

from sqlalchemy import update

from db.clock import now
from db.repositories.base import Repository, until
from db.tables import Lease


class Leases(Repository):
    """Leases by name. A row stays for good, so that tokens only ever grow."""

    def acquire(self, name: str, holder: str, ttl_sec: float) -> int | None:
        """Take a lease that is free or has run out; its token, or None while someone holds it."""
        taken = {"holder": holder, "token": Lease.token + 1, "until": until(ttl_sec)}
        insert = self.insert(Lease).values(name=name, holder=holder, token=1, until=until(ttl_sec))
        upsert = insert.on_conflict_do_update(index_elements=["name"], set_=taken, where=Lease.until < now())
        return self.session.execute(upsert.returning(Lease.token)).scalar_one_or_none()

    def renew(self, name: str, token: int, ttl_sec: float) -> bool:
        """False when another holder has taken it since, or it was released."""
        mine = Lease.name == name, Lease.token == token, Lease.holder != ""
        return self.changed(update(Lease).where(*mine).values(until=until(ttl_sec))) == 1

    def release(self, name: str, token: int) -> bool:
        """Give it back; False when it was no longer ours."""
        mine = Lease.name == name, Lease.token == token, Lease.holder != ""
        return self.changed(update(Lease).where(*mine).values(until=0.0, holder="")) == 1
