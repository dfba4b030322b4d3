"""The settings of the access service."""

from pydantic import Field

from tradewind.server.settings import CommonSettings


class AccessSettings(CommonSettings):
    """Settings of the access service."""

    port: int = Field(7705, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    access_session_seconds: float = Field(
        86_400.0, ge=1, le=31_622_400, description="A session ends so long after its login, whatever happens."
    )
    access_idle_seconds: float = Field(
        7_200.0, ge=1, le=31_622_400, description="A session ends so long after its last use."
    )
    access_token_days: float = Field(
        90.0, gt=0, le=366, description="For how many days a token for a program is good at most."
    )
