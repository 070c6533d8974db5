"""Messages as touches of memory by the host."""

from clocks import OrderError


class Watched:
    """A communicator whose messages are known to a fake device."""

    def __init__(self, comm, fake):
        self.comm, self.fake = comm, fake

    def Isend(self, message, peer, tag):
        return Flight(self.fake, message[0], False, self.comm.Isend(message, peer, tag))

    def Irecv(self, message, peer, tag):
        return Flight(self.fake, message[0], True, self.comm.Irecv(message, peer, tag))


class Flight:
    def __init__(self, fake, memory, receives, request):
        self.fake, self.request, self.receives = fake, request, receives
        self.place = memory.address, memory.nbytes
        found, _ = fake.find(*self.place)
        if not (found.pinned or fake.aware):
            raise OrderError("an MPI that knows no devices got memory of one")
        fake.host.tick(fake.host)
        fake.touch(fake.host, *self.place, receives)
        fake.flying.append((*self.place, receives))

    def Test(self, status):
        if self.request is not None and self.request.Test(status):
            self.fake.flying.remove((*self.place, self.receives))
            if self.receives:
                self.fake.host.tick(self.fake.host)
                self.fake.touch(self.fake.host, self.place[0], status.Get_count(), True, arriving=True)
            self.request = None
        return self.request is None
