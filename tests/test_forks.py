"""A process that has fitted a model may fork: its children predict, explain and fit as it does itself."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import faulthandler, os
import numpy as np
from cofrnet import CoFrNetClassifier

rng = np.random.default_rng(0)
X = rng.normal(size=(20_000, 6))
y = (X[:, 0] * X[:, 1] + X[:, 2] > 0).astype(int)
fit = lambda: CoFrNetClassifier(max_epochs=2, random_state=0).fit(X, y)
model = fit()
expected, added = model.predict_proba(X), model.explain_local(X[:2000]).values
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(120, exit=True)
    same = np.array_equal(model.predict_proba(X), expected)
    same &= np.array_equal(model.explain_local(X[:2000]).values, added)
    same &= np.array_equal(fit().predict_proba(X), expected)
    os._exit(0 if same else 3)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_children_do_as_their_parent_does():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


BUSY = """
import faulthandler, os, threading
import torch
from cofrnet.compiled import blas
from cofrnet.nn import CoFrNet

torch.set_grad_enabled(False)
model, x, stop = CoFrNet(n_features=4), torch.randn(5, 4), threading.Event()

def predict():
    torch.set_grad_enabled(False)
    while not stop.is_set():
        model(x)

model(x)
threads = [library.get_num_threads() for library in blas._libraries()]
thread = threading.Thread(target=predict)
thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        model(x)
        os._exit(0 if [library.get_num_threads() for library in blas._libraries()] == threads else 3)
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        stop.set()
        raise SystemExit(code)
stop.set()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_children_of_a_process_that_is_predicting():
    done = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
