# relume for Kubernetes: one process or its parts, on SQLite or Kafka. No engine and no GPU library is in it: engines run
# in pods of their own images. Everything is installed by hash.
#
#   docker build -t relume:0.1.0 .
ARG PYTHON=3.11

# With a C compiler: the wheel, and the hot path compiled.
FROM python:${PYTHON} AS compile
WORKDIR /opt/relume
COPY requirements/build.txt requirements/build.txt
RUN python -m venv /opt/tools \
 && /opt/tools/bin/pip install --disable-pip-version-check --no-cache-dir --require-hashes -r requirements/build.txt
COPY . .
RUN /opt/tools/bin/pip wheel --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir /opt/wheels . \
 && /opt/tools/bin/python -m compiling.build \
 && rm -rf .mypy_cache

# What runs, without pip.
FROM python:${PYTHON}-slim AS install
COPY requirements/image.txt /tmp/image.txt
COPY --from=compile /opt/wheels /tmp/wheels
RUN python -m venv --without-pip /opt/venv \
 && pip --python /opt/venv/bin/python install --disable-pip-version-check --no-cache-dir --require-hashes \
        -r /tmp/image.txt \
 && pip --python /opt/venv/bin/python install --disable-pip-version-check --no-cache-dir --no-deps --no-index \
        /tmp/wheels/*.whl
# The compiled modules stand in for the wheel's as long as they are of the same sources: these.
COPY --from=compile /opt/relume/compiling /opt/relume/compiling
COPY --from=compile /opt/relume/events /opt/relume/events
COPY --from=compile /opt/relume/coldstart /opt/relume/coldstart
COPY --from=compile /opt/relume/runtime /opt/relume/runtime
COPY --from=compile /opt/relume/build/compiled /opt/relume/build/compiled
RUN printf '/opt/relume\nimport compiling.finder\n' > "$(/opt/venv/bin/python -c \
        'import sysconfig; print(sysconfig.get_path("purelib"))')/relume_compiled.pth" \
 && /opt/venv/bin/relume version --help > /dev/null \
 && /opt/venv/bin/python -c 'from deploy.cli.versions import hot_path; assert hot_path() == "compiled", hot_path()'

FROM python:${PYTHON}-slim
COPY --from=install /opt/venv /opt/venv
COPY --from=install /opt/relume /opt/relume
ENV PATH=/opt/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8080 8081 8082
ENTRYPOINT ["relume"]
CMD ["up"]
