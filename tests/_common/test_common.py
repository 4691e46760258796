import pickle

from segkit._common import LocalProgress


def test_another_process_shows_no_progress():
    told = []

    def show(items, description):
        told.append(description)
        yield from items

    progress = LocalProgress(show)
    assert list(progress([1, 2], "here")) == [1, 2]
    assert list(pickle.loads(pickle.dumps(progress))([1, 2], "there")) == [1, 2]
    assert told == ["here"]
