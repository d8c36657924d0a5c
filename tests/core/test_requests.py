"""How an engine sends many requests: in order, a few at a time, paced, and again where that may help."""

import _thread
import email.utils
import itertools
import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core.engines import _requests
from attr_core.engines._requests import Failure, Limits, Pace, failure_of_status, retry_after, send_all
from attr_core.errors import ConfigurationError

pytest.importorskip("tenacity")


class BusyError(Exception):
    pass


class RefusedError(Exception):
    pass


def judge(error):
    return Failure(passing=isinstance(error, BusyError), hopeless=isinstance(error, RefusedError))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(_requests, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(_requests, "LONGEST_WAIT", 0.05)


def send(jobs, *, limits=None, judge=judge, **options):
    limits = limits or Limits(concurrency=4, retries=3)
    return send_all(jobs, limits=limits, pace=Pace(limits), judge=judge, **options)


def failing(times, result, error=BusyError):
    """A job that fails so often before it gives its result."""
    left = itertools.count(times, -1)

    def job():
        if next(left) > 0:
            raise error(f"not yet {result}")
        return result

    return job


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_results_come_in_the_order_of_the_jobs_whatever_order_they_end_in():
    def job(n):
        return lambda: (time.sleep(0.03 if n % 2 else 0), n)[1]

    assert send([job(n) for n in range(12)]) == list(range(12))


def test_no_jobs_give_no_outcomes():
    assert send([]) == []


def test_no_more_than_the_limit_are_under_way():
    lock, under_way, most = threading.Lock(), [0], [0]

    def job():
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        time.sleep(0.01)
        with lock:
            under_way[0] -= 1

    send([job] * 20, limits=Limits(concurrency=3))
    assert most[0] == 3


def test_the_limit_holds_for_two_calls_of_one_engine_together():
    limits = Limits(concurrency=2)
    pace, lock, under_way, most = Pace(limits), threading.Lock(), [0], [0]

    def job():
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        time.sleep(0.01)
        with lock:
            under_way[0] -= 1

    calls = [
        threading.Thread(target=lambda: send_all([job] * 8, limits=limits, pace=pace, judge=judge)) for _ in range(2)
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert most[0] == 2


def test_what_fails_for_a_passing_reason_is_sent_again_and_the_rest_is_not():
    outcomes = send([failing(2, "a"), failing(1, "b", ValueError), failing(0, "c")])
    assert outcomes[0] == "a"
    assert isinstance(outcomes[1], ValueError)
    assert outcomes[2] == "c"


def test_after_the_last_attempt_its_exception_is_the_outcome():
    tries = []

    def job():
        tries.append(1)
        raise BusyError(str(len(tries)))

    (outcome,) = send([job], limits=Limits(retries=2))
    assert len(tries) == 3
    assert str(outcome) == "3"


def test_a_call_that_is_refused_for_its_rate_is_sent_again_after_the_time_asked_for():
    times = []

    def job():
        times.append(time.monotonic())
        if len(times) == 1:
            raise BusyError
        return "done"

    assert send([job], judge=lambda error: Failure(passing=True, wait=0.2)) == ["done"]
    assert 0.2 <= times[1] - times[0] < 1


def test_while_the_server_asks_to_wait_no_other_request_goes_either():
    started, refused = [], threading.Event()

    def first():
        if not refused.is_set():
            refused.set()
            raise BusyError
        return "first"

    def other():
        refused.wait()
        time.sleep(0.05)
        return "other"

    def last():
        started.append(time.monotonic())
        return "last"

    begun = time.monotonic()
    outcomes = send(
        [first, other, last], limits=Limits(concurrency=2), judge=lambda error: Failure(passing=True, wait=0.3)
    )
    assert outcomes == ["first", "other", "last"]
    assert started[0] - begun >= 0.3


def test_waits_grow_and_vary(monkeypatch):
    monkeypatch.setattr(_requests, "FIRST_WAIT", 0.04)
    monkeypatch.setattr(_requests, "LONGEST_WAIT", 10.0)
    times = []

    def job():
        times.append(time.monotonic())
        raise BusyError

    send([job], limits=Limits(retries=3))
    waits = [after - before for before, after in itertools.pairwise(times)]
    for n, wait in enumerate(waits):
        assert 0.04 * 2**n / 2 <= wait < 0.04 * 2**n + 0.1


def test_what_is_hopeless_stops_the_rest_which_share_its_exception():
    sent = []

    def job(n):
        def run():
            sent.append(n)
            if n == 2:
                raise RefusedError("bad key")
            time.sleep(0.02)
            return n

        return run

    outcomes = send([job(n) for n in range(50)], limits=Limits(concurrency=2))
    assert outcomes[:2] == [0, 1]
    assert len(sent) < 8
    assert {str(one) for one in outcomes[len(sent) :]} == {"bad key"}


def test_a_server_that_asks_for_an_hour_is_not_waited_for():
    begun = time.monotonic()
    tries = []

    def job():
        tries.append(1)
        raise BusyError("an hour")

    outcomes = send([job] * 30, limits=Limits(concurrency=2), judge=lambda error: Failure(passing=True, wait=3600.0))
    assert time.monotonic() - begun < 2
    assert len(tries) <= 2
    assert all(isinstance(one, BusyError) for one in outcomes)


def test_an_endpoint_that_answers_nothing_is_given_up_after_as_many_requests_as_are_under_way():
    sent = []

    def job(n):
        def run():
            sent.append(n)
            raise BusyError(f"down {n}")

        return run

    outcomes = send([job(n) for n in range(100)], limits=Limits(concurrency=3, retries=1))
    assert all(isinstance(one, BusyError) for one in outcomes)
    assert len(set(sent)) <= 6


def test_one_request_that_always_fails_does_not_stop_the_others():
    outcomes = send([failing(99, n) if n == 3 else failing(n % 2, n) for n in range(12)])
    assert [n for n, one in enumerate(outcomes) if isinstance(one, Exception)] == [3]


def test_results_are_handed_over_as_they_come():
    taken = {}
    send([failing(n % 2, n * n) for n in range(6)], done=taken.__setitem__)
    assert taken == {n: n * n for n in range(6)}


def test_an_interruption_stops_at_once_and_loses_nothing_that_had_come():
    """Ctrl-C while one request is stuck and others wait for their next attempt."""
    release, sent, taken = threading.Event(), [], {}

    def quick(n):
        def run():
            sent.append(n)
            return n

        return run

    def stuck():
        _thread.interrupt_main()
        release.wait(20)

    jobs = [quick(0), quick(1), stuck, *[quick(n) for n in range(3, 400)]]

    def slowly(index, result):
        taken[index] = result
        time.sleep(0.005)

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        send(jobs, limits=Limits(concurrency=2), done=slowly)
    assert time.monotonic() - begun < 5
    count = len(sent)
    release.set()
    time.sleep(0.1)
    assert len(sent) <= count + 2
    assert {0, 1} <= set(taken)


def test_an_interruption_ends_the_waits_between_attempts(monkeypatch):
    monkeypatch.setattr(_requests, "FIRST_WAIT", 60.0)
    monkeypatch.setattr(_requests, "LONGEST_WAIT", 60.0)
    tries = []

    def job():
        tries.append(1)
        if len(tries) == 4:
            _thread.interrupt_main()
        raise BusyError

    with pytest.raises(KeyboardInterrupt):
        send([job] * 4, limits=Limits(concurrency=4))
    time.sleep(0.3)
    assert not [one for one in threading.enumerate() if one.name == "attrkit-requests"]


def test_what_the_callback_raises_stops_the_batch():
    sent = []

    def refuse(index, result):
        raise RuntimeError("enough")

    def job():
        sent.append(1)
        time.sleep(0.01)

    with pytest.raises(RuntimeError, match="enough"):
        send([job] * 100, done=refuse)
    time.sleep(0.1)
    assert len(sent) < 30


def test_what_is_no_failure_of_a_request_reaches_the_caller():
    def job():
        raise SystemExit("a bug")

    with pytest.raises(SystemExit):
        send([job])


def test_in_no_minute_more_requests_go_than_allowed():
    clock = Clock()
    pace = Pace(Limits(requests_per_minute=5), clock=clock)
    times = []
    while len(times) < 23:
        if wait := pace.take():
            clock.now += wait
        else:
            times.append(clock.now)
            clock.now += 0.25
    assert all(later - earlier >= 60 for earlier, later in zip(times, times[5:], strict=False))
    assert times[4] - times[0] < 2, "a few may go at once"
    assert times[-1] - times[0] < 60 * 5


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=40),
    steps=st.lists(st.floats(0, 30), min_size=1, max_size=5),
    requests=st.none() | st.integers(1, 10),
)
def test_in_no_minute_more_tokens_go_than_allowed(sizes, steps, requests):
    clock, log = Clock(), []
    pace = Pace(Limits(requests_per_minute=requests, tokens_per_minute=200), clock=clock)
    for size, step in zip(sizes, itertools.cycle(steps), strict=False):
        for _ in range(len(sizes) + 2):
            if not (wait := pace.take(size)):
                break
            clock.now += wait
        else:
            pytest.fail("it never may go")
        log.append((clock.now, size))
        clock.now += step
    for n, (start, _) in enumerate(log):
        window = [size for at, size in log[n:] if at < start + 60 - 1e-6]
        assert requests is None or len(window) <= requests
        assert sum(window) <= 200 or len([size for size in window if size]) == 1


def test_without_limits_on_the_rate_nothing_waits_or_is_remembered():
    pace = Pace(Limits())
    assert [pace.take(10**9) for _ in range(1000)] == [0.0] * 1000
    assert not pace._sent


def test_rates_hold_across_the_calls_of_an_engine(monkeypatch):
    clock, limits = Clock(), Limits(requests_per_minute=3)
    pace = Pace(limits, clock=clock)
    assert send_all([lambda: 1] * 3, limits=limits, pace=pace, judge=judge) == [1, 1, 1]
    assert pace.take() == 60.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_is_forked_while_the_pace_is_locked_can_send():
    limits = Limits(concurrency=1)
    pace = Pace(limits)
    pace._free.acquire()
    with pace._lock:
        child = os.fork()
        if not child:
            done = send_all([lambda: 1], limits=limits, pace=pace, judge=judge) == [1]
            os._exit(0 if done else 1)
    deadline = time.monotonic() + 10
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(ended[1]) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"timeout": 0.0},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"retries": -1},
        {"requests_per_minute": 0},
        {"tokens_per_minute": -5},
    ],
)
def test_limits_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Limits(**wrong)


def test_token_counts_must_fit_the_jobs():
    with pytest.raises(ConfigurationError, match="1 token counts do not fit 2 requests"):
        send([lambda: 1] * 2, tokens=[5])


@pytest.mark.parametrize(
    ("status", "passing", "hopeless"),
    [
        *[(status, True, False) for status in (408, 409, 425, 429, 500, 502, 503, 504, 529)],
        *[(status, False, True) for status in (401, 402, 403, 404)],
        *[(status, False, False) for status in (400, 413, 422, 501, 505)],
    ],
)
def test_a_status_says_whether_another_attempt_is_worth_it(status, passing, hopeless):
    assert failure_of_status(status) == Failure(passing=passing, hopeless=hopeless)


def test_a_server_tells_how_long_to_wait_in_seconds_milliseconds_or_as_a_date():
    assert retry_after({"Retry-After": "3"}) == 3.0
    assert retry_after({"retry-after": "0.5"}) == 0.5
    assert retry_after({"Retry-After-Ms": "250", "Retry-After": "1"}) == 0.25
    date = email.utils.formatdate(1_000_060, usegmt=True)
    assert retry_after({"RETRY-AFTER": date}, now=lambda: 1_000_000.0) == 60.0
    assert retry_after({"RETRY-AFTER": date}, now=lambda: 2_000_000.0) == 0.0


@given(st.dictionaries(st.sampled_from(["Retry-After", "retry-after-ms", "other"]), st.text(max_size=40)))
def test_whatever_a_server_says_of_waiting_is_seconds_or_nothing(headers):
    told = retry_after(headers)
    assert told is None or (isinstance(told, float) and 0 <= told < float("inf"))


@given(st.sampled_from(["nan", "inf", "-inf", "1e999", "", "soon", "Wed, 99 Foo 2020", "\ud800", "Thu, 01 Jan 0000"]))
def test_nonsense_about_waiting_is_nothing(text):
    assert retry_after({"Retry-After": text}) is None
