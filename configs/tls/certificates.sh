#!/usr/bin/env bash
# Makes the files that Dask needs for TLS: an authority for this cluster, a certificate that it signs, and Dask's settings.
#
#   configs/tls/certificates.sh /shared/tls
#   configs/tls/certificates.sh tls /etc/dbfs/tls   # for processes that have the folder at another place, such as pods
#
# Any process that can read the folder can join the cluster: scheduler, workers and clients use the same certificate.
set -euo pipefail
umask 077

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: $0 FOLDER [PLACE]" >&2
    exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$folder"
place=${2:-$folder}
if [ -e ca.pem ]; then
    echo "$folder/ca.pem exists; remove it to make a new authority" >&2
    exit 1
fi

key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
openssl req -x509 "${key[@]}" -keyout ca-key.pem -out ca.pem -days 3650 -subj "/CN=dbfs authority"
openssl req "${key[@]}" -keyout key.pem -out request.pem -subj "/CN=dbfs"
openssl x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -out cert.pem -days 365
# Without the authority's key, no further certificate can be signed. For a new one, remove ca.pem and run this script.
rm request.pem ca-key.pem ca.srl

cat > tls.yaml <<YAML
distributed:
  comm:
    default-scheme: tls
    require-encryption: true
    tls:
      ca-file: $place/ca.pem
      scheduler: {cert: $place/cert.pem, key: $place/key.pem}
      worker: {cert: $place/cert.pem, key: $place/key.pem}
      client: {cert: $place/cert.pem, key: $place/key.pem}
YAML
echo "export DASK_CONFIG=$place"
