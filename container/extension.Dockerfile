# An image volume for PostgreSQL 18: the files of etcd_leader alone, for
# CloudNativePG's spec.postgresql.extensions or any server that mounts it.
#
#   docker build -f container/extension.Dockerfile -t etcd_leader:18 .
#
# Build it on the distribution of the image with the server.
ARG BASE=debian:sid

FROM ${BASE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends make gcc libc6-dev libcurl4-openssl-dev libnghttp2-dev libssl-dev libjansson-dev libmicrohttpd-dev postgresql-18 postgresql-server-dev-18
COPY . /src
RUN /src/container/extension /usr/lib/postgresql/18/bin/pg_config /volume

FROM scratch
COPY --from=build /volume /
