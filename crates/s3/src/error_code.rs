//! The error codes of S3: name, HTTP status and the sentence that goes with each.

macro_rules! codes {
    ($($name:ident $status:literal $message:literal)*) => {
        /// Codes of S3's error answers; clients act on the name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum S3Code { $($name),* }

        impl S3Code {
            /// All of them, for tests and documents.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The text of the `Code` element.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }

            /// HTTP status of an answer with this code.
            pub fn status(self) -> u16 {
                match self { $(Self::$name => $status),* }
            }

            /// The sentence that AWS sends with this code, or one like it.
            pub fn message(self) -> &'static str {
                match self { $(Self::$name => $message),* }
            }
        }
    };
}

codes! {
    AccessDenied 403 "Access Denied"
    AccessForbidden 403 "This CORS request is not allowed."
    AuthorizationHeaderMalformed 400 "The authorization header you provided is invalid."
    AuthorizationQueryParametersError 400 "The authorization query parameters that you provided are not valid."
    BadDigest 400 "The Content-MD5 or checksum value that you specified did not match what the server received."
    BadRequest 400 "Bad Request"
    BucketAlreadyExists 409 "The requested bucket name is not available. Please select a different name and try again."
    BucketAlreadyOwnedByYou 409 "The bucket that you tried to create already exists, and you own it."
    BucketNotEmpty 409 "The bucket that you tried to delete is not empty."
    ConditionalRequestConflict 409 "A conflicting conditional operation is currently in progress against this resource. Please try again."
    EntityTooLarge 400 "Your proposed upload exceeds the maximum allowed object size."
    EntityTooSmall 400 "Your proposed upload is smaller than the minimum allowed object size."
    ExpiredToken 400 "The provided token has expired."
    IllegalVersioningConfigurationException 400 "The versioning configuration specified in the request is invalid."
    IncompleteBody 400 "You did not provide the number of bytes specified by the Content-Length HTTP header."
    InternalError 500 "We encountered an internal error. Please try again."
    InvalidAccessKeyId 403 "The AWS Access Key Id you provided does not exist in our records."
    InvalidArgument 400 "Invalid Argument"
    InvalidBucketName 400 "The specified bucket is not valid."
    InvalidBucketState 409 "The request is not valid for the current state of the bucket."
    InvalidDigest 400 "The Content-MD5 or checksum value that you specified is not valid."
    InvalidEncryptionAlgorithmError 400 "The encryption request that you specified is not valid."
    InvalidLocationConstraint 400 "The specified location constraint is not valid."
    InvalidPart 400 "One or more of the specified parts could not be found. The part may not have been uploaded, or the specified entity tag may not match the part's entity tag."
    InvalidPartOrder 400 "The list of parts was not in ascending order. Parts must be ordered by part number."
    InvalidPolicyDocument 400 "The content of the form does not meet the conditions specified in the policy document."
    InvalidRange 416 "The requested range is not satisfiable"
    InvalidRequest 400 "Invalid Request"
    InvalidStorageClass 400 "The storage class you specified is not valid."
    InvalidTag 400 "The tag provided was not a valid tag."
    InvalidToken 400 "The provided token is malformed or otherwise not valid."
    InvalidURI 400 "Couldn't parse the specified URI."
    KeyTooLongError 400 "Your key is too long"
    MalformedACLError 400 "The XML you provided was not well-formed or did not validate against our published schema."
    MalformedPOSTRequest 400 "The body of your POST request is not well-formed multipart/form-data."
    MalformedPolicy 400 "Policies must be valid JSON and the first byte must be '{'"
    MalformedTrailerError 400 "The request contained trailing data that was not well-formed or did not conform to our published schema."
    MalformedXML 400 "The XML you provided was not well-formed or did not validate against our published schema."
    MaxMessageLengthExceeded 400 "Your request was too big."
    MaxPostPreDataLengthExceededError 400 "Your POST request fields preceding the upload file were too large."
    MetadataTooLarge 400 "Your metadata headers exceed the maximum allowed metadata size."
    MethodNotAllowed 405 "The specified method is not allowed against this resource."
    MissingContentLength 411 "You must provide the Content-Length HTTP header."
    MissingRequestBodyError 400 "Request body is empty."
    MissingSecurityHeader 400 "Your request was missing a required header"
    NoSuchBucket 404 "The specified bucket does not exist"
    NoSuchBucketPolicy 404 "The bucket policy does not exist"
    NoSuchCORSConfiguration 404 "The CORS configuration does not exist"
    NoSuchKey 404 "The specified key does not exist."
    NoSuchLifecycleConfiguration 404 "The lifecycle configuration does not exist"
    NoSuchPublicAccessBlockConfiguration 404 "The public access block configuration was not found"
    NoSuchTagSet 404 "The TagSet does not exist"
    NoSuchUpload 404 "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."
    NoSuchVersion 404 "The specified version does not exist."
    NoSuchWebsiteConfiguration 404 "The specified bucket does not have a website configuration"
    NotImplemented 501 "A header you provided implies functionality that is not implemented"
    NotModified 304 "Not Modified"
    ObjectLockConfigurationNotFoundError 404 "Object Lock configuration does not exist for this bucket"
    OperationAborted 409 "A conflicting conditional operation is currently in progress against this resource. Try again."
    OwnershipControlsNotFoundError 404 "The bucket ownership controls were not found"
    PreconditionFailed 412 "At least one of the preconditions you specified did not hold"
    QuotaExceeded 403 "The bucket has as many bytes or objects as its quota allows."
    RequestTimeTooSkewed 403 "The difference between the request time and the server's time is too large."
    RequestTimeout 400 "Your socket connection to the server was not read from or written to within the timeout period."
    ReplicationConfigurationNotFoundError 404 "The replication configuration was not found"
    ServerSideEncryptionConfigurationNotFoundError 404 "The server side encryption configuration was not found"
    ServiceUnavailable 503 "Service is unable to handle request."
    SignatureDoesNotMatch 403 "The request signature we calculated does not match the signature you provided. Check your key and signing method."
    SlowDown 503 "Please reduce your request rate."
    StorageFull 507 "There is no room left in the cluster."
    TooManyBuckets 400 "You have attempted to create more buckets than are allowed."
    UnexpectedContent 400 "This request contains unsupported content."
    UnresolvableGrantByEmailAddress 400 "The email address you provided does not match any account on record."
    XAmzContentChecksumMismatch 400 "The provided 'x-amz-checksum' header does not match what was computed."
    XAmzContentSHA256Mismatch 400 "The provided 'x-amz-content-sha256' header does not match what was computed."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_repeat_only_what_may_pass_later() {
        for code in S3Code::ALL {
            let repeated = matches!(
                code,
                S3Code::InternalError
                    | S3Code::NotImplemented
                    | S3Code::ServiceUnavailable
                    | S3Code::SlowDown
                    | S3Code::StorageFull
            );
            assert_eq!(code.status() >= 500, repeated, "{code:?}");
        }
    }
}
