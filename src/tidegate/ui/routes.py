"""The routes of the pages: JSON views, the same that the CLI prints, and the bundle. They only read (docs/adr/0022-pages.md).

Brokers and catalogs may take seconds to answer. So routes wait in a few threads of their own, others for each Kafka connection,
and make their JSON there, which may be large: threads and event loop of the API server stay free for Airflow's routes.

Airflow mounts the app without any authentication of its own. So each route asks Airflow's auth manager: by the DAG id in its
path, and lists are made of what the user may see. Anonymous users are answered nothing, also for paths that do not exist.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Annotated, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.middleware.base import RequestResponseEndpoint

from tidegate.core.model.errors import RequestError, TidegateError
from tidegate.ui import BUNDLE
from tidegate.ui.database import KnownDag, file_errors
from tidegate.ui.reading import Frame, PageSource, all_typed
from tidegate.views.pages import MapAnswer, PipelinesAnswer, encode
from tidegate.waiting import now_ms

THREADS = 4
"""In which the brokers and the catalogs of one Kafka connection are waited for: one that hangs holds up no other."""
ALL = ""
"""Names the threads of the list, which asks all connections."""
router = APIRouter()
MayRead = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
MayReadValues = Depends(requires_access_dag("GET", DagAccessEntity.XCOM))


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
        lifespan=_lifespan,
    )
    app.state.source = PageSource()
    app.state.apart = defaultdict[str, CapacityLimiter](partial(CapacityLimiter, THREADS))
    app.add_exception_handler(TidegateError, _refuse)
    app.middleware("http")(_uncached)
    app.include_router(router)
    return app


async def _uncached(request: Request, answer: RequestResponseEndpoint) -> Response:
    """What one user may see is not kept for the next one, nor that somebody was refused."""
    response = await answer(request)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Airflow enters it as its own."""
    yield
    await to_thread.run_sync(app.state.source.close)


def _source(request: Request) -> PageSource:
    source: PageSource = request.app.state.source
    return source


TheSource = Annotated[PageSource, Depends(_source)]


def _known(dag_id: str, source: TheSource) -> KnownDag:
    found = source.dags.find(dag_id)
    if found is None:
        raise NotFound(f"{dag_id} is not a DAG of Tidegate", fix="Open the page of a pipeline's own DAG")
    return found


TheDag = Annotated[KnownDag, Depends(_known)]


def _pipeline(dag_id: str, known: TheDag) -> KnownDag:
    if known.declared.pipeline != dag_id:
        raise NotFound(f"{dag_id} is not a pipeline of Tidegate", fix="Open the page of a pipeline's own DAG")
    return known


ThePipeline = Annotated[KnownDag, Depends(_pipeline)]


@router.get("/api/pipelines")
async def pipelines(request: Request, user: GetUserDep, source: TheSource) -> Response:
    """All pipelines whose runs the user may see, those that need attention first; and what keeps Airflow from running tasks."""

    def ask() -> PipelinesAnswer:
        known, may_see = source.dags.pipelines(), get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
        found = {dag_id: each for dag_id, each in known.items() if dag_id in may_see and _may_see_runs(user, dag_id)}
        errors = _shown_errors(user, found, known)
        return PipelinesAnswer(at_ms=now_ms(), pipelines=source.pipelines(found, errors), airflow=source.airflow())

    return await _apart(request, ALL, ask)


def _shown_errors(user: BaseUser, found: Mapping[str, KnownDag], known: Mapping[str, KnownDag]) -> dict[str, str]:
    """Why files of pipelines cannot be read, by pipeline.

    Who may see import errors sees the text, of pipelines that the user may see, and of files that never were a pipeline.
    Others learn which of their pipelines has one.
    """
    errors = {name: why for (bundle, name), why in file_errors().items() if name not in known or known[name].bundle == bundle}
    if get_auth_manager().is_authorized_view(access_view=AccessView.IMPORT_ERRORS, user=user):
        return {name: why for name, why in errors.items() if name in found or name not in known}
    return dict.fromkeys(errors.keys() & found.keys(), "Its file cannot be read. Who may see import errors sees why.")


@router.get("/api/dags/{dag_id}/lag", dependencies=[MayRead])
async def lag(request: Request, known: ThePipeline, source: TheSource) -> Response:
    """As `tidegate lag --json`, with the age of the answer, and why there is no newer one."""
    of = known.declared
    return await _apart(request, of.connection, lambda: source.lag(of))


def _frame(
    columns: Annotated[int, Query(ge=1, le=2000)] = 300,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    skip: Annotated[int, Query(ge=0)] = 0,
) -> Frame:
    return Frame(columns, slice(skip, skip + limit))


@router.get("/api/dags/{dag_id}/map", dependencies=[MayRead])
async def ranges(
    request: Request,
    user: GetUserDep,
    known: ThePipeline,
    source: TheSource,
    frame: Annotated[Frame, Depends(_frame)],
    batches: Annotated[int, Query(ge=1, le=1000)] = 200,
    before: Annotated[int | None, Query(ge=0)] = None,
    axis: Literal["offset", "time"] = "offset",
) -> Response:
    """The range map of the newest batches, or of those before one, and of some partitions; and the last runs."""
    of = known.declared

    def ask() -> MapAnswer:
        replays, this = _may_see_runs(user, of.replay_dag), {of.pipeline: known}
        error = _shown_errors(user, this, this).get(of.pipeline)
        return source.range_map(known, frame, batches=batches, before=before, axis=axis, replays=replays, file_error=error)

    return await _apart(request, of.connection, ask)


@router.get("/api/dags/{dag_id}/batches/{seq}", dependencies=[MayRead])
async def batch(request: Request, user: GetUserDep, known: ThePipeline, source: TheSource, seq: int) -> Response:
    """One batch in full; null where nothing is saved of it."""
    of = known.declared
    return await _apart(request, of.connection, lambda: source.batch(of, seq, replays=_may_see_runs(user, of.replay_dag)))


@router.get("/api/dags/{dag_id}/batches/{seq}/broken", dependencies=[MayRead, MayReadValues])
async def broken(request: Request, known: ThePipeline, source: TheSource, seq: int) -> Response:
    """The first broken records of a batch, whose reasons may have values of records."""
    of = known.declared
    return await _apart(request, of.connection, lambda: source.broken(of, seq), as_is=True)


@router.get("/api/dags/{dag_id}/runs/{run_id:path}", dependencies=[MayRead])
async def run(request: Request, user: GetUserDep, dag_id: str, known: TheDag, source: TheSource, run_id: str) -> Response:
    """What a DAG run read: its batch, its replay, or why there is neither."""
    of = known.declared
    ask = partial(source.run, dag_id, of, run_id)
    return await _apart(request, of.connection, lambda: ask(replays=_may_see_runs(user, of.replay_dag)))


@router.get("/api/dags/{dag_id}/history", dependencies=[MayRead])
async def history(
    request: Request,
    known: ThePipeline,
    source: TheSource,
    hours: Annotated[int, Query(ge=1, le=720)] = 24,
    buckets: Annotated[int, Query(ge=1, le=300)] = 120,
) -> Response:
    """What batches read and took over time, and what is to be expected."""
    return await _apart(request, known.declared.connection, lambda: source.history(known, hours=hours, buckets=buckets))


@router.get("/api/dags/{dag_id}/quarantine", dependencies=[MayRead, MayReadValues])
async def quarantine(request: Request, known: ThePipeline, source: TheSource) -> Response:
    """As `tidegate quarantine --json`: for those who may read what tasks hand on, since it has values of records."""
    of = known.declared
    return await _apart(request, of.connection, lambda: source.quarantine(of), as_is=True)


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


async def _apart(request: Request, connection: str, ask: Callable[[], object], *, as_is: bool = False) -> Response:
    """An answer as JSON, made in the threads of a Kafka connection; `as_is` where it has values of records."""

    def answer() -> Response:
        said = encode(ask()).decode()
        return Response(said if as_is else all_typed(said, is_json=True), media_type="application/json")

    return await to_thread.run_sync(answer, limiter=request.app.state.apart[connection])


def _may_see_runs(user: BaseUser, dag_id: str) -> bool:
    return get_auth_manager().is_authorized_dag(
        method="GET", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag_id), user=user
    )


def _refuse(_request: Request, error: Exception) -> Response:
    """The answer for an error, which says no more than its message and its fix."""
    assert isinstance(error, TidegateError)  # noqa: S101 - the type that the handler is registered for
    kinds = ((NotFound, HTTPStatus.NOT_FOUND), (RequestError, HTTPStatus.BAD_REQUEST))
    status = next((status for kind, status in kinds if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
    said = {"message": all_typed(error.message), "fix": all_typed(error.fix)}
    return JSONResponse(said, int(HTTPStatus.SERVICE_UNAVAILABLE if error.retryable else status))
