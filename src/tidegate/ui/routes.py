"""The routes of the pages: JSON views, the same that the CLI prints, and the bundle. They only read.

Brokers and catalogs may take seconds to answer. Routes that ask them wait in a few threads of their own: those of the API
server stay free for Airflow's routes.

Airflow mounts the app without any authentication of its own. So each route asks Airflow's auth manager: by the DAG id in its
path, and lists are made of what the user may see. Anonymous users are answered nothing, also for paths that do not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response

from tidegate.airflow.declared import Declared
from tidegate.core.errors import RequestError, TidegateError
from tidegate.ui import BUNDLE
from tidegate.ui.answers import now_ms
from tidegate.ui.reading import Source, shown

T = TypeVar("T")

APART = CapacityLimiter(8)
"""Threads in which brokers and catalogs are waited for."""

router = APIRouter()
MayRead = Depends(requires_access_dag("GET", DagAccessEntity.RUN))


class NotFound(TidegateError):
    """There is no such pipeline, page or file."""


def make_app() -> FastAPI:
    """The app that Airflow mounts at `PREFIX`, for users who may see plugins."""
    app = FastAPI(
        title="Tidegate",
        dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
        # FastAPI serves these to everybody
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.source = Source()
    app.add_exception_handler(TidegateError, _refuse)
    app.include_router(router)
    return app


def _source(request: Request) -> Source:
    source: Source = request.app.state.source
    return source


TheSource = Annotated[Source, Depends(_source)]


def _pipeline(dag_id: str, source: TheSource) -> Declared:
    found = source.pipelines([dag_id]).get(dag_id)
    if found is None:
        raise NotFound(f"{dag_id} is no pipeline of Tidegate", fix="Open the page of a pipeline's own DAG")
    return found[0]


ThePipeline = Annotated[Declared, Depends(_pipeline)]


@router.get("/api/pipelines")
def pipelines(user: GetUserDep, source: TheSource) -> dict[str, Any]:
    """All pipelines whose runs the user may see, those that need attention first."""
    may_see = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    shown = {dag_id: found for dag_id, found in source.pipelines(sorted(may_see)).items() if _may_see_runs(user, dag_id)}
    return _now(pipelines=source.overviews(shown))


@router.get("/api/dags/{dag_id}/lag", dependencies=[MayRead])
async def lag(of: ThePipeline, source: TheSource) -> dict[str, Any]:
    """As `tidegate lag --json`, with the age of the answer, and why there is no newer one."""
    return await _apart(lambda: source.lag(of))


@router.get("/api/dags/{dag_id}/map", dependencies=[MayRead])
async def ranges(
    of: ThePipeline,
    source: TheSource,
    batches: Annotated[int, Query(ge=1, le=1000)] = 200,
    before: Annotated[int | None, Query(ge=0)] = None,
    columns: Annotated[int, Query(ge=1, le=2000)] = 300,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    skip: Annotated[int, Query(ge=0)] = 0,
) -> dict[str, Any]:
    """The range map of the newest batches, or of those before one, and of some partitions."""
    view = await _apart(lambda: source.range_map(of, batches=batches, before=before, columns=columns, limit=limit, skip=skip))
    return _now(**view)


@router.get("/api/dags/{dag_id}/batches/{seq}", dependencies=[MayRead])
async def batch(of: ThePipeline, source: TheSource, seq: int) -> dict[str, Any]:
    """One batch in full; null where nothing is saved of it."""
    return _now(**await _apart(lambda: source.batch(of, seq=seq)))


@router.get("/api/dags/{dag_id}/runs/{run_id:path}", dependencies=[MayRead])
async def run(of: ThePipeline, source: TheSource, run_id: str) -> dict[str, Any]:
    """The batch of a DAG run; null where it has saved none."""
    return _now(**await _apart(lambda: source.batch(of, run_id=run_id)))


@router.get("/api/dags/{dag_id}/trend", dependencies=[MayRead])
def trend(of: ThePipeline, source: TheSource) -> dict[str, Any]:
    """What the last batches took, the oldest first."""
    return _now(batches=source.trend(of))


@router.get("/bundle/tidegate.js")
def bundle() -> Response:
    """What shows all that."""
    if not BUNDLE.is_file():
        raise NotFound("the pages are not built", fix="Run `make bundle` in the checkout, or install Tidegate's wheel")
    return FileResponse(BUNDLE, media_type="text/javascript", headers={"Cache-Control": "no-cache"})


@router.get("/{_path:path}")
def other(_path: str) -> Response:
    """Everything else, so that anonymous users do not learn which paths there are."""
    raise NotFound("there is no such page", fix="Follow a link of Airflow's UI")


async def _apart(ask: Callable[[], T]) -> T:
    return await to_thread.run_sync(ask, limiter=APART)


def _may_see_runs(user: Any, dag_id: str) -> bool:
    return get_auth_manager().is_authorized_dag(
        method="GET", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag_id), user=user
    )


def _now(**answer: Any) -> dict[str, Any]:
    return {"at_ms": now_ms(), **answer}


def _refuse(_request: Request, error: Exception) -> Response:
    """The answer for an error, which says no more than its message and its fix."""
    assert isinstance(error, TidegateError)  # noqa: S101 - the type that the handler is registered for
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    if isinstance(error, NotFound):
        status = HTTPStatus.NOT_FOUND
    if isinstance(error, RequestError):
        status = HTTPStatus.BAD_REQUEST
    return JSONResponse(shown(error), HTTPStatus.SERVICE_UNAVAILABLE if error.retryable else status)
