"""The laws of the ports (`tidegate.core.state.ports`), one suite for each, to be run by pytest against a fake or an adapter.

    class TestMyStore(StateStoreContract):
        @pytest.fixture
        def store(self) -> MyStore: ...

A suite asks for what it cannot make itself by fixtures; the docstring of its class lists them. So the fakes of
`tidegate.testing.fakes`, the adapters of Tidegate, and an adapter of your own pass the same code. Imports pytest, which
Tidegate itself does not need.

For the full report of a failed assertion, a `conftest.py` begins with
`pytest.register_assert_rewrite("tidegate.testing.contracts")`.
"""
