# One image for every service, the CLI and workers: `python -m tradewind.scheduler`, `tradewind worker nodes`, `tradewind up`.
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY libs libs
COPY services services
RUN python -m venv /opt/tradewind
RUN /opt/tradewind/bin/python -m pip install --no-cache-dir --no-compile --constraint constraints.txt .
RUN /opt/tradewind/bin/python -m compileall -q /opt/tradewind/lib
RUN /opt/tradewind/bin/python -m pip uninstall --yes --quiet pip

FROM python:3.12-slim
RUN python -m pip uninstall --yes --quiet --root-user-action ignore pip \
    && useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin tradewind \
    && install -d -o tradewind -g tradewind -m 0700 /data
COPY --from=build /opt/tradewind /opt/tradewind
ENV PATH=/opt/tradewind/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME /data
EXPOSE 7700
# Checks readiness at TRADEWIND_HOST and TRADEWIND_PORT, 127.0.0.1:7700 unless set. Kubernetes has its own probes and ignores this one.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["python", "-m", "tradewind.server.probe"]
CMD ["tradewind", "up", "--host", "0.0.0.0", "--data", "/data"]
